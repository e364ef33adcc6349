// A server that says nothing before what was recorded is durable.
#include "tests/support/late_message.hpp"
#include "tests/support/raw_peer.hpp"
#include "tests/support/store_server.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

/// Durable is what the test says.
class Slow final : public store::Commits {
 public:
  std::uint64_t recorded() const override { return recorded_; }
  std::uint64_t durable() const override { return durable_; }
  void seal() override { sealed_ = recorded_; }
  std::uint64_t recorded_bytes() const override { return recorded_ * change_bytes_; }
  std::uint64_t durable_bytes() const override { return durable_ * change_bytes_; }
  bool stuck() const override { return stuck_; }
  void on_durable(std::function<void()> told) override { told_ = std::move(told); }

  /// What each change takes.
  void be_large(std::uint64_t bytes) { change_bytes_ = bytes; }
  void get_stuck() {
    stuck_ = true;
    told_();
  }
  /// How long the recording of each keeps the server busy.
  void be_laborious(Clock::duration each) { labour_ = each; }
  void record() {
    ++recorded_;
    const auto done = Clock::now() + labour_;
    while (Clock::now() < done) {
    }
  }
  void make_durable(std::uint64_t change) {
    durable_ = change;
    told_();
  }
  std::uint64_t sealed() const { return sealed_; }

 private:
  std::uint64_t recorded_ = 0, durable_ = 0, sealed_ = 0;
  std::uint64_t change_bytes_ = 1;
  Clock::duration labour_{};
  bool stuck_ = false;
  std::function<void()> told_;
};

/// A namespace each of whose changes is one that Slow records; keeps what it hears as lines.
class Journal final : public store::SpaceJournal {
 public:
  Journal(Slow& slow, std::vector<std::string>& heard) : slow_(slow), heard_(heard) {}
  void stored(std::string_view key, BytesView, std::uint64_t, std::chrono::milliseconds) override {
    note("stored " + std::string(key));
  }
  void erased(std::string_view key) override { note("erased " + std::string(key)); }
  void pushed(std::string_view queue, BytesView) override { note("pushed " + std::string(queue)); }
  void popped(std::string_view queue) override { note("popped " + std::string(queue)); }
  void completed(const store::CompleteRound&) override { note("completed"); }
  void answered(std::uint64_t session, std::uint64_t request, wire::Type, BytesView) override {
    note("answered " + std::to_string(session) + "." + std::to_string(request));
  }
  void forgot(std::uint64_t session) override { note("forgot " + std::to_string(session)); }
  void dropped() override { note("dropped"); }
  std::string refusal() const override { return heard_.size() > 100 ? "full" : ""; }

 private:
  void note(std::string line) {
    slow_.record();
    heard_.push_back(std::move(line));
  }
  Slow& slow_;
  std::vector<std::string>& heard_;
};

struct Held {
  Held() {
    space = server.on_loop([&](store::Server& s) {
      s.hold_for(slow);
      store::KeptSpace kept;
      kept.contents.keys.push_back({"before", Bytes(3, std::byte{'b'}), 0, {}});
      kept.contents.answers.push_back({7, 5, wire::Type::done, {}});
      kept.journal = std::make_unique<Journal>(slow, heard);
      return s.add_space(11, {}, std::move(kept));
    });
  }
  void sit(RawPeer& peer, std::uint64_t session, const std::string& job = "") {
    peer.greet(session, job);
    CHECK(server.on_loop([&](store::Server& s) { return s.seat(server.host.last(), space); }));
  }
  void make_durable(std::uint64_t change) {
    server.on_loop([&](store::Server&) {
      slow.make_durable(change);
      return true;
    });
  }
  /// Nothing has come, though the server has had a turn.
  bool silent(const RawPeer& peer) {
    server.on_loop([](store::Server&) { return true; });
    pollfd wait{peer.fd(), POLLIN, 0};
    return ::poll(&wait, 1, 0) == 0;
  }
  /// Waits until that many changes were heard.
  void await(std::size_t count) {
    const auto deadline = soon();
    while (server.on_loop([&](store::Server&) { return heard.size(); }) < count) {
      REQUIRE(Clock::now() < deadline);
    }
  }

  Slow slow;
  std::vector<std::string> heard;
  ServerThread server;
  store::SpaceId space = 0;
};

}  // namespace

TEST_CASE("an answer waits for its change, a read for what it shows, and nothing for later ones") {
  Held held;
  RawPeer writer(held.server.connect()), reader(held.server.connect());
  held.sit(writer, 7);
  held.sit(reader, 8);
  // Nothing is under way: at once, and what was there before is there.
  reader.ask(1, wire::Get{"before"});
  CHECK(as_text(reader.frame().second).ends_with("bbb"));

  writer.ask(6, wire::Set{"k", as_bytes("v")});
  held.await(2);
  CHECK(held.heard == std::vector<std::string>{"stored k", "answered 7.6"});
  CHECK(held.slow.sealed() == 2);
  reader.ask(2, wire::Get{"k"});
  reader.ask(3, wire::Push{"q", as_bytes("1")});
  held.await(4);
  CHECK(held.silent(writer));
  CHECK(held.silent(reader));
  held.make_durable(1);
  CHECK(held.silent(writer));
  held.make_durable(2);
  writer.answer<wire::Done>(6);
  // The read came before the push, and in one turn with it or not; it never waits for more.
  held.make_durable(4);
  CHECK(as_text(reader.frame().second).ends_with("v"));
  reader.answer<wire::Done>(3);
}

TEST_CASE("a message that is written in a later turn waits for the changes it was said after") {
  Held held;
  RawPeer first(held.server.connect()), second(held.server.connect());
  held.sit(first, 7);
  const auto first_id = held.server.host.last();
  held.sit(second, 8);
  const auto second_id = held.server.host.last();
  std::vector<std::string> made;
  held.server.on_loop([&](store::Server& s) {
    s.carry_out([&] {
      held.slow.record();
      s.push_late(first_id, std::make_unique<NotedMessage>("first", made, 20ms));
      s.push_late(second_id, std::make_unique<NotedMessage>("second", made));
    });
    return true;
  });
  // The second one has its turn, in which it asks something.
  second.ask(9, wire::Push{"q", as_bytes("1")});
  held.await(2);
  CHECK(held.silent(first));
  CHECK(held.silent(second));
  CHECK(made == std::vector<std::string>{"first", "second"});
  held.make_durable(1);
  CHECK(text(first.frame().second) == "first");
  held.make_durable(3);
  CHECK(text(second.frame().second) == "second");
  second.answer<wire::Done>(9);
}

TEST_CASE("a change that was answered by an earlier server is not made again") {
  Held held;
  RawPeer peer(held.server.connect());
  held.sit(peer, 7);
  peer.ask(5, wire::Set{"k", as_bytes("v")});
  peer.answer<wire::Done>(5);
  peer.ask(6, wire::Get{"k"});
  peer.answer<wire::Absent>(6);
  CHECK(held.heard.empty());
}

TEST_CASE("what many write is said in order, as far as it is durable") {
  Held held;
  RawPeer peer(held.server.connect());
  held.sit(peer, 7);
  constexpr std::uint64_t count = 40;
  for (std::uint64_t i = 1; i <= count; ++i) peer.ask(100 + i, wire::Add{"n", 1});
  held.await(2 * count);
  CHECK(held.silent(peer));
  for (std::uint64_t i = 1; i <= 2 * count; ++i) held.make_durable(i);
  for (std::uint64_t i = 1; i <= count; ++i) {
    const auto sum = static_cast<std::uint64_t>(peer.answer<wire::Number>(100 + i).value);
    CHECK(sum == i);
  }
}

TEST_CASE("where no change can be kept it is refused, and reads go on") {
  Held held;
  RawPeer peer(held.server.connect());
  held.sit(peer, 7);
  for (std::uint64_t i = 1; i <= 51; ++i) peer.ask(100 + i, wire::Add{"n", 1});
  held.await(102);
  held.make_durable(102);
  for (std::uint64_t i = 1; i <= 51; ++i) peer.answer<wire::Number>(100 + i);
  peer.ask(200, wire::Add{"n", 1});
  CHECK(peer.answer<wire::Failed>(200).sentence == "full");
  peer.ask(201, wire::Get{"n"});
  CHECK(as_text(peer.frame().second).ends_with("51"));
  CHECK(held.heard.size() == 102);
}

TEST_CASE("a job with much that is not durable waits, alone, and not while nothing can be") {
  Held held;
  held.server.host.many_jobs = true;
  held.slow.be_large(5u << 20);  // A set makes two changes, so that one is more than a job may.
  RawPeer busy(held.server.connect()), colleague(held.server.connect());
  RawPeer other(held.server.connect());
  held.sit(busy, 7, "busy");
  const store::ConnectionId busy_number = held.server.host.last();
  held.sit(colleague, 8, "busy");
  held.sit(other, 9, "other");
  const auto heard = [&](const std::string& line) {
    return held.server.on_loop(
        [&](store::Server&) { return std::ranges::count(held.heard, line) > 0; });
  };
  busy.ask(1, wire::Set{"k", {}});
  held.await(2);
  busy.ask(2, wire::Set{"later", {}});
  colleague.ask(1, wire::Set{"colleague's", {}});
  other.ask(1, wire::Set{"other's", {}});
  held.await(4);
  CHECK(heard("stored other's"));
  CHECK_FALSE(heard("stored later"));
  CHECK_FALSE(heard("stored colleague's"));
  // It is not taken for silent meanwhile.
  const auto asked = Clock::now();
  const auto last =
      held.server.on_loop([&](store::Server& s) { return s.last_heard(busy_number); });
  CHECK(last.value_or(Clock::time_point()) >= asked);
  held.make_durable(4);
  held.await(6);
  held.make_durable(6);
  held.await(8);
  CHECK(heard("stored later"));
  CHECK(heard("stored colleague's"));

  busy.ask(3, wire::Set{"last", {}});
  for (int turns = 0; turns < 3; ++turns) CHECK_FALSE(heard("stored last"));
  held.server.on_loop([&](store::Server&) {
    held.slow.get_stuck();
    return true;
  });
  held.await(10);
  CHECK(heard("stored last"));
}

TEST_CASE("one whose turn ended before its work is not taken for silent while its job waits") {
  Held held;
  held.slow.be_large(5u << 20);
  RawPeer busy(held.server.connect());
  held.sit(busy, 7);
  const store::ConnectionId number = held.server.host.last();
  held.slow.be_laborious(5ms);  // Longer than a turn.
  busy.ask(1, wire::Set{"k", {}});
  held.await(2);
  busy.ask(2, wire::Set{"later", {}});
  const auto asked = Clock::now();
  const auto last = held.server.on_loop([&](store::Server& s) { return s.last_heard(number); });
  CHECK(last.value_or(Clock::time_point()) >= asked);
}

TEST_CASE("strangers whose changes are not durable wait together, whatever jobs they name") {
  Held held;
  held.server.host.many_jobs = true;
  held.slow.be_large(5u << 20);
  RawPeer one(held.server.connect()), another(held.server.connect());
  RawPeer other(held.server.connect());
  for (auto* each : {&one, &another}) {
    held.sit(*each, each == &one ? 7 : 8, each == &one ? "one" : "another");
    held.server.on_loop([&](store::Server& s) {
      s.count_as_stranger(held.server.host.last(), true);
      return true;
    });
  }
  held.sit(other, 9, "other");
  one.ask(1, wire::Set{"k", {}});
  held.await(2);
  another.ask(1, wire::Set{"another's", {}});
  other.ask(1, wire::Set{"other's", {}});
  held.await(4);
  const auto heard = [&](const std::string& line) {
    return held.server.on_loop(
        [&](store::Server&) { return std::ranges::count(held.heard, line) > 0; });
  };
  CHECK(heard("stored other's"));
  CHECK_FALSE(heard("stored another's"));
  held.make_durable(4);
  held.await(6);
  CHECK(heard("stored another's"));
}

TEST_CASE("what tells of no change passes what waits, save while nothing may leave") {
  Held held;
  RawPeer peer(held.server.connect());
  held.sit(peer, 7);
  const store::ConnectionId number = held.server.host.last();
  peer.ask(1, wire::Set{"k", as_bytes("v")});
  held.await(2);
  const auto push = [&](wire::Type type) {
    held.server.on_loop([&](store::Server& s) {
      s.push_ahead(number, type);
      return true;
    });
  };
  push(wire::Type::warning);
  CHECK(held.silent(peer));
  held.make_durable(1);
  CHECK(peer.frame().first.type == wire::Type::warning);
  push(wire::Type::report);
  CHECK(peer.frame().first.type == wire::Type::report);
  CHECK(held.silent(peer));
  held.make_durable(2);
  peer.answer<wire::Done>(1);
}

TEST_CASE("a refused change is answered before those that wait") {
  Held held;
  RawPeer peer(held.server.connect());
  held.sit(peer, 7);
  for (std::uint64_t i = 1; i <= 51; ++i) peer.ask(100 + i, wire::Add{"n", 1});
  held.await(102);
  held.make_durable(1);
  peer.ask(200, wire::Add{"n", 1});
  CHECK(peer.answer<wire::Failed>(200).sentence == "full");
  held.make_durable(102);
  for (std::uint64_t i = 1; i <= 51; ++i) peer.answer<wire::Number>(100 + i);
}

TEST_CASE("a connection that hears of nothing recorded does not wait") {
  Held held;
  RawPeer writer(held.server.connect()), newcomer(held.server.connect());
  held.sit(writer, 7);
  held.sit(newcomer, 8);
  const auto free = [&](bool freely) {
    held.server.on_loop([&](store::Server& s) {
      s.speak_freely(held.server.host.last(), freely);
      return true;
    });
  };
  writer.ask(1, wire::Set{"k", as_bytes("v")});
  held.await(2);
  held.make_durable(1);
  free(true);
  newcomer.ask(1, wire::Get{"before"});
  CHECK(as_text(newcomer.frame().second).ends_with("bbb"));
  free(false);
  newcomer.ask(2, wire::Get{"before"});
  CHECK(held.silent(newcomer));
  held.make_durable(2);
  CHECK(as_text(newcomer.frame().second).ends_with("bbb"));
}

TEST_CASE("a job waits for no change of another one, and for those in nobody's turn") {
  Held held;
  held.server.host.many_jobs = true;
  RawPeer writer(held.server.connect()), colleague(held.server.connect());
  RawPeer other(held.server.connect());
  held.sit(writer, 7, "busy");
  held.sit(colleague, 8, "busy");
  held.sit(other, 9, "other");
  for (int i = 0; i < 3; ++i) CHECK(held.server.host.heard("hello -"));
  writer.ask(1, wire::Set{"k", as_bytes("v")});
  held.await(2);
  held.make_durable(1);
  colleague.ask(1, wire::Get{"before"});
  RawPeer late(held.server.connect());
  late.say_hello(10, "busy");
  CHECK(held.server.host.heard("hello -"));
  other.ask(1, wire::Get{"before"});
  CHECK(as_text(other.frame().second).ends_with("bbb"));
  RawPeer newcomer(held.server.connect());
  newcomer.greet(11, "other");
  CHECK(held.silent(writer));
  CHECK(held.silent(colleague));
  CHECK(held.silent(late));
  held.make_durable(2);
  writer.answer<wire::Done>(1);
  CHECK(as_text(colleague.frame().second).ends_with("bbb"));
  CHECK(late.read(wire::preface_bytes).size() == wire::preface_bytes);

  held.server.on_loop([&](store::Server&) {
    held.slow.record();
    return true;
  });
  other.ask(2, wire::Get{"before"});
  CHECK(held.silent(other));
  held.make_durable(3);
  CHECK(as_text(other.frame().second).ends_with("bbb"));
}

TEST_CASE("who comes back to a job that all had left waits for what it changed") {
  Held held;
  held.server.host.many_jobs = true;
  RawPeer writer(held.server.connect());
  RawPeer other(held.server.connect());
  held.sit(writer, 7, "busy");
  held.sit(other, 8, "other");
  for (int i = 0; i < 2; ++i) CHECK(held.server.host.heard("hello -"));
  writer.ask(1, wire::Set{"k", as_bytes("v")});
  held.await(2);
  held.make_durable(1);
  writer.hang_up();
  CHECK(held.server.host.heard("closed"));
  RawPeer back(held.server.connect());
  back.say_hello(7, "busy");
  CHECK(held.server.host.heard("hello -"));
  CHECK(held.silent(back));
  held.make_durable(2);
  CHECK(back.read(wire::preface_bytes).size() == wire::preface_bytes);
}
