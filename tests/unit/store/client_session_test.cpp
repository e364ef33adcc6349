// The client's side of the protocol, in memory: what it says to bytes and times.
#include "runtime/store/session/client_session.hpp"

#include "tests/support/expect.hpp"

#include <algorithm>
#include <random>
#include <set>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using store::ClientSession;
using testing::contains;

namespace {

using Kind = ClientSession::Event::Kind;
/// A type that only a host reads.
constexpr wire::Type the_hosts{105};
constexpr Clock::time_point start{1h};

ClientSession::Options options() {
  ClientSession::Options result;
  result.hello.session = 7;
  result.hello.job = "train";
  result.joining = "joining the test";
  result.peer = "the test";
  result.silence_max = 9s;
  return result;
}

/// The server's end. It adds once for each number, however often that comes.
class Peer {
 public:
  /// What it says to these bytes, which may end in the middle of a frame.
  Bytes hear(BytesView said) {
    const auto room = reader_.room();
    REQUIRE(said.size() <= room.size());
    std::ranges::copy(said, room.begin());
    reader_.arrived(said.size(), {});
    Bytes out;
    if (!greeted_ && (greeted_ = reader_.preface().has_value())) wire::encode_preface(out);
    while (greeted_) {
      const auto frame = reader_.next();
      if (!frame) break;
      heard.push_back(frame->header);
      answer(frame->header, frame->payload, out);
    }
    return out;
  }
  /// The next connection.
  void cut() {
    reader_ = store::FrameReader();
    greeted_ = false;
  }

  std::vector<wire::FrameHeader> heard;
  std::vector<std::uint64_t> waits_us;  ///< The timeouts that came.
  std::int64_t sum = 0;
  bool mute = false;  ///< Answers nothing but HELLO.

 private:
  void answer(const wire::FrameHeader& header, BytesView payload, Bytes& out) {
    const wire::FrameHeader reply{0, {}, wire::reply, header.request, 0};
    if (header.type == wire::Type::hello) {
      CHECK(wire::decode<wire::Hello>(payload)->job == "train");
      wire::encode_frame(out, reply, wire::Welcome{"train", 3, 1});
    }
    if (const auto wait = wire::decode<wire::WaitGet>(payload);
        wait && header.type == wire::WaitGet::type) {
      waits_us.push_back(wait->timeout.microseconds);
    }
    if (mute) return;
    if (header.type == wire::Add::type) {
      const auto [known, is_new] = sums_.try_emplace(header.request, sum + 1);
      sum += is_new ? 1 : 0;
      wire::encode_frame(out, reply, wire::Number{known->second});
    } else if (header.type == wire::Get::type) {
      wire::encode_frame(out, reply, wire::Absent{});
    } else if (header.type == wire::Type::ping) {
      wire::encode_frame(out, reply, wire::Done{});
    }
  }

  store::FrameReader reader_;
  bool greeted_ = false;
  std::map<std::uint64_t, std::int64_t> sums_;
};

void take_in(ClientSession& session, BytesView bytes, Clock::time_point now = start) {
  const auto room = session.room();
  REQUIRE(bytes.size() <= room.size());
  std::ranges::copy(bytes, room.begin());
  session.received(bytes.size(), {}, now);
}

/// Hands out what has come; the kinds of the events.
std::vector<Kind> events(ClientSession& session, Clock::time_point now = start) {
  std::vector<Kind> kinds;
  while (const auto event = session.next(now)) {
    kinds.push_back(event->kind);
    if (event->kind == Kind::welcome) session.resume(now);
    if (event->answer) event->answer(event->header, event->payload);
  }
  return kinds;
}

/// Both ends talk until nothing more is said.
void converse(ClientSession& session, Peer& peer, Clock::time_point now = start) {
  for (;;) {
    const BytesView all = session.unsent();
    const BytesView said = all.first(std::min<std::size_t>(all.size(), 4096));
    if (said.empty()) return;
    const Bytes answer = peer.hear(said);
    session.sent(said.size());
    if (!answer.empty()) take_in(session, answer, now);
    events(session, now);
  }
}

template <class Message>
std::uint64_t ask(ClientSession& session, const Message& message,
                  ClientSession::Answer answer = nullptr, Clock::time_point now = start) {
  Bytes payload;
  wire::encode(payload, message);
  return session.request(Message::type, 3, payload, std::move(answer), now);
}

std::size_t count_of(const Peer& peer, wire::Type type) {
  return static_cast<std::size_t>(std::ranges::count(peer.heard, type, &wire::FrameHeader::type));
}

/// How the greeting ends when the other side says this.
ClientSession::Break broken_by(BytesView said) {
  ClientSession session(options());
  session.begin(false, start);
  take_in(session, said);
  CHECK(events(session).empty());
  REQUIRE(session.broken());
  CHECK_FALSE(session.open());
  return *session.broken();
}

}  // namespace

TEST_CASE("a greeting, a push behind it, and requests that were made before") {
  ClientSession session(options());
  Peer peer;
  std::vector<wire::Type> answers;
  ask(session, wire::Add{"n", 1},
      [&](const wire::FrameHeader& header, BytesView) { answers.push_back(header.type); });
  CHECK(session.unsent().empty());
  session.begin(false, start);
  const BytesView hello = session.unsent();
  Bytes answer = peer.hear(hello);
  session.sent(hello.size());
  wire::encode_frame(answer, {0, the_hosts, 0, 0, 0}, as_bytes("news"));
  take_in(session, answer);
  CHECK(events(session) == std::vector{Kind::welcome, Kind::push});
  CHECK(session.welcome() == wire::Welcome{"train", 3, 1});
  converse(session, peer);
  CHECK(answers == std::vector{wire::Type::number});
  session.leave();
  converse(session, peer);
  CHECK(peer.heard.back().type == wire::Type::goodbye);
}

TEST_CASE("however the bytes are split and the connection cut, each request is answered once") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    std::minstd_rand random(seed + 1);
    const auto up_to = [&](std::size_t most) { return 1 + random() % most; };
    ClientSession session(options());
    Peer peer;
    std::multiset<std::int64_t> sums;
    std::size_t asked = 0;
    Bytes down;  // On its way to the session.
    constexpr std::size_t adds = 400;
    for (bool connected = false; sums.size() < adds;) {
      if (!connected || random() % 50 == 0) {
        if (connected) session.ended("cut");
        peer.cut();
        down.clear();
        session.begin(false, start);
        connected = true;
      }
      for (std::size_t i = up_to(8); i > 0 && asked < adds; --i, ++asked) {
        ask(session, wire::Add{"n", 1}, [&](const wire::FrameHeader&, BytesView payload) {
          sums.insert(wire::decode<wire::Number>(payload)->value);
        });
      }
      const BytesView said = session.unsent();
      if (!said.empty()) {
        const std::size_t some = std::min(said.size(), up_to(200));
        const Bytes answer = peer.hear(said.first(some));
        session.sent(some);
        down.insert(down.end(), answer.begin(), answer.end());
      }
      if (!down.empty()) {
        const auto some = static_cast<std::ptrdiff_t>(std::min(down.size(), up_to(200)));
        take_in(session, BytesView(down).first(static_cast<std::size_t>(some)));
        down.erase(down.begin(), down.begin() + some);
      }
      events(session);
      REQUIRE_FALSE(session.broken());
    }
    CHECK(peer.sum == adds);
    CHECK(std::set(sums.begin(), sums.end()).size() == adds);
    CHECK(*sums.rbegin() == adds);
  }
}

TEST_CASE("what is sent again says what is left of its time, and what stands is asked again") {
  ClientSession session(options());
  Peer peer;
  session.begin(false, start);
  converse(session, peer);
  ask(session, wire::WaitGet{{5'000'000}, "k"});
  int absent = 0;
  Bytes get;
  wire::encode(get, wire::Get{"k"});
  session.request(
      wire::Get::type, 3, get, [&](const wire::FrameHeader&, BytesView) { ++absent; }, start, true);
  converse(session, peer);
  session.ended({});
  REQUIRE(session.broken());
  CHECK(std::string(session.broken()->error.what()) == "lost the test: it closed the connection");
  CHECK_FALSE(session.broken()->final);
  peer.cut();
  session.begin(false, start + 2s);
  converse(session, peer, start + 2s);
  CHECK(peer.waits_us == std::vector<std::uint64_t>{5'000'000, 3'000'000});
  CHECK(absent == 2);
}

TEST_CASE("no more changes are unanswered than a server remembers") {
  ClientSession session(options());
  Peer peer;
  peer.mute = true;
  session.begin(false, start);
  std::vector<std::uint64_t> pops;
  for (int i = 0; i < 300; ++i) pops.push_back(ask(session, wire::Pop{{}, "q"}));
  for (int i = 0; i < 300; ++i) ask(session, wire::Add{"n", 1});
  converse(session, peer);
  CHECK(count_of(peer, wire::Pop::type) == wire::unanswered_changes_max / 2);
  CHECK(count_of(peer, wire::Add::type) == wire::unanswered_changes_max / 2);
  session.forget(pops.front(), start);  // Cancelled, so there is room for another.
  converse(session, peer);
  CHECK(count_of(peer, wire::Cancel::type) == 1);
  CHECK(count_of(peer, wire::Pop::type) == wire::unanswered_changes_max / 2 + 1);
}

TEST_CASE("a change whose waiter is gone is carried out, a question is not repeated") {
  ClientSession session(options());
  Peer peer;
  session.forget(ask(session, wire::Get{"k"}), start);
  session.forget(ask(session, wire::Add{"n", 1}, [](const auto&, BytesView) { FAIL("answered"); }),
                 start);
  session.begin(false, start);
  converse(session, peer);
  CHECK(count_of(peer, wire::Get::type) == 0);
  CHECK(peer.sum == 1);
}

TEST_CASE("a silent peer is asked after a third of the time and given up after all of it") {
  ClientSession session(options());
  Peer peer;
  session.begin(false, start);
  CHECK(session.due() == Clock::time_point::max());
  converse(session, peer);
  CHECK(session.due() == start + 3s);
  session.tick(start + 2s);
  CHECK(session.unsent().empty());
  session.tick(start + 3s);
  converse(session, peer, start + 3s);
  CHECK(count_of(peer, wire::Type::ping) == 1);
  CHECK(session.due() == start + 6s);  // It has answered.
  peer.mute = true;
  session.tick(start + 6s);
  converse(session, peer);
  CHECK(session.due() == start + 12s);
  SUBCASE("it stays silent") {
    session.tick(start + 12s);
    REQUIRE(session.broken());
    CHECK(contains(session.broken()->error.what(), "lost the test: nothing came from it for 9 s"));
  }
  SUBCASE("it was us who stood still") {
    session.tick(start + 30s);
    CHECK_FALSE(session.broken());
    converse(session, peer);
    CHECK(count_of(peer, wire::Type::ping) == 3);
    CHECK(session.due() == start + 39s);
  }
}

TEST_CASE("a peer that does not read has a limit") {
  auto limited = options();
  limited.unsent_bytes_max = 10'000;
  ClientSession session(limited);
  Peer peer;
  session.begin(false, start);
  converse(session, peer);
  session.tell(the_hosts, 0, Bytes(9'000));
  CHECK_FALSE(session.broken());
  session.tell(the_hosts, 0, Bytes(9'000));
  REQUIRE(session.broken());
  CHECK(contains(session.broken()->error.what(), "it does not read; "));
}

TEST_CASE("what is no greeting is told apart, and some of it will not change") {
  Bytes preface;
  wire::encode_preface(preface);
  const auto behind_preface = [&](const auto& message) {
    Bytes said = preface;
    wire::encode_frame(said, {0, {}, wire::reply, 0, 0}, message);
    return broken_by(said);
  };
  auto end = behind_preface(wire::Failed{Errc::refused, "not you"});
  CHECK(end.final);
  CHECK(std::string(end.error.what()) == "joining the test: refused: not you");
  end = behind_preface(wire::Failed{Errc::timeout, "later"});
  CHECK_FALSE(end.final);
  end = behind_preface(wire::Number{1});
  CHECK(end.error.errc() == Errc::unreachable);
  CHECK(contains(end.error.what(), "it answers HELLO with a message of type 129"));
  end = broken_by(as_bytes("hi"));
  CHECK_FALSE(end.final);
  CHECK(contains(end.error.what(), "joining the test: what answers there is not dlaunch"));
  preface[4] = std::byte{9};
  end = broken_by(preface);
  CHECK(end.final);
  CHECK(end.error.errc() == Errc::version);
}
