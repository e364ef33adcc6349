// Requests for many keys and the ends of many sessions, which are worked off a part at a time;
// without a socket.
#include "runtime/store/native/native.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::store;

namespace {

class Doorman final : public Host {
 public:
  std::variant<wire::Welcome, Refusal> admit(ConnectionId, const wire::Hello&) override {
    return wire::Welcome{"job", 7, 0};
  }
  void on_message(ConnectionId, const wire::FrameHeader&, BytesView) override {}
  void on_other_version(ConnectionId, std::uint32_t) override {}
  void on_closed(ConnectionId, bool) override {}
};

/// A connection whose turn is over after each request, or part of one.
class Peer final : public Outbox {
 public:
  Peer(NativeSpaces& spaces, std::uint64_t client, std::uint64_t session = 0)
      : session_(spaces.open(client, *this)) {
    Bytes hello;
    wire::encode_preface(hello);
    wire::Hello greeting;
    greeting.session = session;
    wire::encode_frame(hello, {}, greeting);
    feed(hello);
    while (heard().empty()) feed({});
  }
  /// One turn with what is said.
  bool feed(BytesView bytes) {
    turn_ = 0;
    return session_->feed(bytes, {});
  }
  template <class Message>
  bool ask(std::uint64_t request, const Message& message) {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, request, 0}, message);
    return feed(out);
  }
  /// The answers that have come since the last call, by request.
  std::map<std::uint64_t, std::pair<wire::Type, Bytes>> heard() {
    std::map<std::uint64_t, std::pair<wire::Type, Bytes>> found;
    BytesView left(bytes_);
    if (std::exchange(preface_, false)) left = left.subspan(wire::preface_bytes);
    while (left.size() >= wire::header_bytes) {
      const auto header = wire::decode_header(left);
      const BytesView payload = left.subspan(wire::header_bytes, header.length);
      found[header.request] = {header.type, Bytes(payload.begin(), payload.end())};
      left = left.subspan(wire::header_bytes + header.length);
    }
    bytes_.clear();
    return found;
  }
  /// So many turns until the next answer.
  std::size_t turns() {
    std::size_t turns = 0;
    for (; bytes_.empty() && turns < 10'000; ++turns) feed({});
    return turns;
  }
  void hang_up() { session_.reset(); }
  std::size_t unread_bytes() const { return session_->unread_bytes(); }

  Bytes& buffer() override { return bytes_; }
  Bytes& ahead() override { return bytes_; }
  void share(std::shared_ptr<const Bytes>) override {}
  void close() override {}
  bool congested() const override { return turn_++ != 0; }
  void fail() noexcept override {}

 private:
  Bytes bytes_;
  bool preface_ = true;
  mutable int turn_ = 0;
  std::unique_ptr<Session> session_;
};

class Forgetting final : public SpaceJournal {
 public:
  explicit Forgetting(std::size_t& forgotten) : forgotten_(forgotten) {}
  void stored(std::string_view, BytesView, std::uint64_t, std::chrono::milliseconds) override {}
  void erased(std::string_view) override {}
  void pushed(std::string_view, BytesView) override {}
  void popped(std::string_view) override {}
  void completed(const CompleteRound&) override {}
  void answered(std::uint64_t, std::uint64_t, wire::Type, BytesView) override {}
  void forgot(std::uint64_t) override { ++forgotten_; }
  void dropped() override {}
  std::string refusal() const override { return {}; }

 private:
  std::size_t& forgotten_;
};

struct Many {
  Many() {
    for (std::size_t i = 0; i < count; ++i) names.push_back("key-" + std::to_string(i));
    set.keys.assign(names.begin(), names.end());
    set.values.assign(count, as_bytes("v"));
    get.keys = set.keys;
  }
  static constexpr std::size_t count = 3000;
  std::vector<std::string> names;
  wire::MultiSet set;
  wire::MultiGet get;
};

std::size_t found_in(const std::pair<wire::Type, Bytes>& answer) {
  const auto values = wire::decode<wire::Values>(answer.second);
  REQUIRE(answer.first == wire::Values::type);
  REQUIRE(values);
  CHECK(values->values.size() == Many::count);
  std::size_t found = 0;
  for (const auto& value : values->values) found += value && as_text(*value) == "v" ? 1U : 0U;
  return found;
}

}  // namespace

TEST_CASE("a request for many keys takes many turns, and is answered once, in its order") {
  Doorman host;
  NativeSpaces spaces(host, {});
  Peer peer(spaces, 1), other(spaces, 2);
  const Many many;
  peer.ask(2, many.set);
  Bytes ping;
  wire::encode_frame(ping, {0, wire::Type::ping, 0, 3, 0}, BytesView{});
  peer.feed(ping);
  CHECK(peer.heard().empty());
  CHECK(peer.unread_bytes() > Many::count * sizeof(std::string_view));
  // Others have their turns meanwhile, and see what is done so far.
  other.ask(2, wire::Count{});
  other.turns();
  const auto count = wire::decode<wire::Number>(other.heard().at(2).second);
  REQUIRE(count);
  CHECK(count->value > 0);
  CHECK(count->value < static_cast<std::int64_t>(Many::count));
  CHECK(peer.turns() > 1);
  auto answers = peer.heard();
  REQUIRE(answers.size() == 1);
  CHECK(answers.at(2).first == wire::Done::type);
  peer.turns();
  CHECK(peer.heard().at(3).first == wire::Done::type);

  other.ask(3, wire::Erase{many.names.back()});
  peer.ask(4, many.get);
  CHECK(peer.turns() > 1);
  CHECK(found_in(peer.heard().at(4)) == Many::count - 1);
  other.heard();
  // A later part sees what has come meanwhile.
  peer.ask(5, many.get);
  other.ask(4, wire::Set{many.names.back(), as_bytes("v")});
  peer.turns();
  CHECK(found_in(peer.heard().at(5)) == Many::count);
}

TEST_CASE("a request for many keys that cannot go on is refused, once") {
  Doorman host;
  Limits limits;
  limits.keys = 2000;
  NativeSpaces spaces(host, limits);
  const Many many;
  Peer peer(spaces, 1);
  peer.ask(2, many.set);
  peer.turns();
  auto answers = peer.heard();
  REQUIRE(answers.size() == 1);
  CHECK(answers.at(2).first == wire::Failed::type);
  CHECK(spaces.find(first_space)->values.size() < limits.keys);
  // Its namespace goes.
  const SpaceId space = spaces.add(8, {});
  spaces.seat(1, space);
  peer.ask(3, many.get);
  spaces.drop(space, "the epoch 8 is over");
  answers = peer.heard();
  REQUIRE(answers.size() == 1);
  const auto failed = wire::decode<wire::Failed>(answers.at(3).second);
  REQUIRE(failed);
  CHECK(failed->code == Errc::aborted);
  CHECK(failed->sentence == "the epoch 8 is over");
  peer.feed({});
  CHECK(peer.heard().empty());
  // Its client goes.
  spaces.seat(1, first_space);
  peer.ask(4, many.get);
  peer.hang_up();
}

TEST_CASE("the answer to a request for many keys fits into a frame, or is refused") {
  Doorman host;
  NativeSpaces spaces(host, {});
  Peer peer(spaces, 1);
  const Bytes big(1u << 20);
  peer.ask(2, wire::Set{"big", big});
  peer.heard();
  wire::MultiGet get;
  get.keys.assign(600, "big");
  peer.ask(3, get);
  peer.turns();
  const auto failed = wire::decode<wire::Failed>(peer.heard().at(3).second);
  REQUIRE(failed);
  CHECK(failed->sentence.find("the answer would have 629148600 bytes") == 0);
}

TEST_CASE("more keys than a request may name are refused before they are decoded") {
  Doorman host;
  NativeSpaces spaces(host, {});
  Peer peer(spaces, 1);
  wire::Wait wait;
  wait.keys.assign(wire::keys_per_request_max + 1, "");
  peer.ask(2, wait);
  const auto failed = wire::decode<wire::Failed>(peer.heard().at(2).second);
  REQUIRE(failed);
  CHECK(failed->sentence == "131073 keys in one request are too many; the limit is 131072");
  // A count that the payload cannot hold is garbage.
  Bytes out;
  wire::encode_frame(out, {0, wire::MultiGet::type, 0, 3, 0}, as_bytes("\xff\xff\xff\xff"));
  CHECK_FALSE(peer.feed(out));
}

TEST_CASE("the sessions of many who went at once are forgotten a part at a time") {
  Doorman host;
  NativeSpaces spaces(host, {});
  std::size_t forgotten = 0;
  KeptSpace kept;
  kept.journal = std::make_unique<Forgetting>(forgotten);
  const SpaceId space = spaces.add(7, {}, std::move(kept), {});
  constexpr std::size_t sessions = 3000;
  for (std::uint64_t client = 1; client <= sessions; ++client) {
    Peer peer(spaces, client, client);
    REQUIRE(spaces.seat(client, space));
    peer.ask(1, wire::Set{"k", {}});
    peer.turns();
  }
  const Clock::time_point later{std::chrono::minutes(5)};
  spaces.tick(later);
  CHECK(forgotten > 0);
  CHECK(forgotten < sessions / 2);
  for (int ticks = 0; forgotten < sessions && ticks < 10; ++ticks) {
    REQUIRE(spaces.next_deadline().value_or(Clock::time_point::max()) <= later);
    spaces.tick(later);
  }
  CHECK(forgotten == sessions);
}
