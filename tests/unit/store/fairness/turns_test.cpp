// One client of a server and the others: a storm of requests, one that fails, memory, crowds.
#include "runtime/store/server/connection.hpp"
#include "tests/support/raw_peer.hpp"
#include "tests/support/store_server.hpp"

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/ioctl.h>

using namespace dlaunch;
using namespace dlaunch::test;

TEST_CASE("a storm of requests is answered in full, a turn at a time") {
  ServerThread server;
  store::Client filler = server.client();
  for (int i = 0; i < 3000; ++i) filler.set("key-" + std::to_string(i), {});
  RawPeer storm(server.connect());
  storm.greet();
  constexpr std::uint64_t lists = 300;
  Bytes out;
  for (std::uint64_t i = 1; i <= lists; ++i) {
    wire::encode_frame(out, {0, {}, 0, i, 0}, wire::ListPage{"key-", {}});
  }
  storm.say(out);
  filler.set("k", as_bytes("v"));  // It has its turn meanwhile.
  CHECK(text(filler.get("k")) == "v");
  for (std::uint64_t i = 1; i <= lists; ++i) {
    const auto [header, payload] = storm.frame();
    REQUIRE(header.request == i);
    const auto page = wire::decode<wire::Page>(payload);
    REQUIRE(page);
    REQUIRE(page->keys.size() == 3000);
  }
}

TEST_CASE("what a client says before it hangs up is heard, however many turns that takes") {
  ServerThread server;
  auto pair = socket_pair();
  server.on_loop([&](store::Server& s) { return s.adopt(std::move(pair.second)); });
  RawPeer peer(std::move(pair.first));
  peer.greet();
  Bytes out;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    wire::encode_frame(out, {0, {}, 0, 0, 0}, wire::Append{"k", as_bytes("x")});
  }
  wire::encode_frame(out, {0, wire::Type::report, 0, 0, 0}, as_bytes("bye"));
  peer.say(out);
  peer.hang_up();
  CHECK(server.host.heard("message 67 bye"));
  CHECK(server.host.heard("closed"));
  CHECK(server.client().get("k").value_or(Bytes{}).size() == 20'000);
}

namespace {

/// Epoll tells first of the socket of which it told last.
void last_to_speak(RawPeer& peer) {
  peer.ask(2, wire::Count{});
  peer.answer<wire::Number>(2);
}

}  // namespace

TEST_CASE("a job of many connections has no more turns than a job of one") {
  ServerThread server;
  server.host.many_jobs = true;
  std::vector<std::string> keys;
  std::deque<RawPeer> crowd;
  for (int i = 0; i < 40; ++i) {
    keys.push_back("key-" + std::to_string(i));
    crowd.emplace_back(server.connect()).greet(0, "crowded");
  }
  RawPeer witness(server.connect());
  witness.greet(0, "alone");
  last_to_speak(crowd.front());
  // The server stands still until all of them have said something, each more than a turn can do.
  std::promise<void> holds, said;
  std::jthread held([&] {
    server.on_loop([&](store::Server&) {
      holds.set_value();
      return said.get_future().wait(), 0;
    });
  });
  holds.get_future().wait();
  for (std::size_t i = 0; i < crowd.size(); ++i) {
    Bytes out;
    while (out.size() < (64u << 10)) {
      wire::encode_frame(out, {0, {}, 0, 0, 0}, wire::Append{keys[i], as_bytes("x")});
    }
    crowd[i].say(out);
  }
  wire::MultiGet all;
  all.keys.assign(keys.begin(), keys.end());
  witness.ask(2, all);
  said.set_value();
  const auto [header, payload] = witness.frame();
  const auto values = wire::decode<wire::Values>(payload);
  REQUIRE(values);
  // Some of the crowd had their turn before the witness, and how many depends on what the server
  // has read by then. By connections in place of jobs, all would have had it: they had spoken
  // before.
  CHECK(std::ranges::count_if(values->values, [](const auto& value) { return !value; }) > 0);
}

TEST_CASE("strangers share one turn, however many jobs they name") {
  ServerThread server;
  server.host.many_jobs = true;
  std::vector<std::string> keys;
  std::deque<RawPeer> crowd;
  std::vector<store::ConnectionId> strangers;
  for (int i = 0; i < 40; ++i) {
    keys.push_back("key-" + std::to_string(i));
    crowd.emplace_back(server.connect()).greet(0, "job-" + std::to_string(i));
    strangers.push_back(server.host.last());
  }
  RawPeer witness(server.connect());
  witness.greet(0, "alone");
  last_to_speak(crowd.front());
  std::promise<void> holds, said;
  std::jthread held([&] {
    server.on_loop([&](store::Server& s) {
      for (const store::ConnectionId who : strangers) s.count_as_stranger(who, true);
      holds.set_value();
      return said.get_future().wait(), 0;
    });
  });
  holds.get_future().wait();
  for (std::size_t i = 0; i < crowd.size(); ++i) {
    Bytes out;
    while (out.size() < (64u << 10)) {
      wire::encode_frame(out, {0, {}, 0, 0, 0}, wire::Append{keys[i], as_bytes("x")});
    }
    crowd[i].say(out);
  }
  wire::MultiGet all;
  all.keys.assign(keys.begin(), keys.end());
  witness.ask(2, all);
  said.set_value();
  const auto [header, payload] = witness.frame();
  const auto values = wire::decode<wire::Values>(payload);
  REQUIRE(values);
  // As jobs each of them would have had a turn before the witness; how many have one together
  // depends on how fast the server is.
  CHECK(std::ranges::count_if(values->values, [](const auto& value) { return !value; }) > 5);
}

TEST_CASE("what a change has to tell thousands is sent in turns, too") {
  ServerThread server;
  server.host.many_jobs = true;
  constexpr std::size_t waiters = 400;
  std::deque<RawPeer> crowd;
  while (crowd.size() < waiters) {
    crowd.emplace_back(server.connect()).greet(0, "crowded");
    crowd.back().ask(2, wire::WaitGet{{}, "k"});
  }
  RawPeer setter(server.connect()), witness(server.connect());
  setter.greet(0, "crowded");
  witness.greet(0, "alone");
  std::ptrdiff_t told = -1;
  server.host.on_report = [&] {
    told = std::ranges::count_if(crowd, [](const RawPeer& each) {
      int bytes = 0;
      return ::ioctl(each.fd(), FIONREAD, &bytes) == 0 && bytes > 0;
    });
  };
  std::promise<void> holds, said;
  std::jthread held([&] {
    server.on_loop([&](store::Server&) {
      holds.set_value();
      return said.get_future().wait(), 0;
    });
  });
  holds.get_future().wait();
  // So large that to tell all takes many times the turn of a job.
  setter.ask(2, wire::Set{"k", Bytes(32u << 10)});
  Bytes report;
  wire::encode_frame(report, {0, wire::Type::report, 0, 0, 0}, as_bytes("now"));
  witness.say(report);
  said.set_value();
  CHECK(server.host.heard("message 67 now"));
  CHECK(told >= 0);
  CHECK(told < std::ptrdiff_t{waiters});
  for (RawPeer& each : crowd) CHECK(each.frame().first.type == wire::Type::found);
}

TEST_CASE("a client's list is whole, however many pages it takes") {
  store::Limits limits;
  limits.listed_keys = 7;
  ServerThread server(limits);
  store::Client client = server.client();
  std::vector<std::string> keys;
  for (int i = 100; i < 150; ++i) client.set(keys.emplace_back("k" + std::to_string(i)), {});
  client.set("other", {});
  CHECK(client.list("k") == keys);
  CHECK(client.list("nothing").empty());
  RawPeer old(server.connect());
  old.greet();
  old.ask(2, wire::List{"k"});
  CHECK(old.answer<wire::Failed>(2).sentence.find("the list is too long") == 0);
}

namespace {

/// Fails in the middle of a request, as a server without memory does.
class FailingBackend final : public store::Backend {
 public:
  bool on_request(const From&, const wire::FrameHeader& header, BytesView,
                  Clock::time_point) override {
    if (header.type == wire::Erase::type) throw std::bad_alloc();
    return true;
  }
  void on_gone(const From&, bool) override { ++gone; }
  int gone = 0;
};

}  // namespace

TEST_CASE("what fails while one connection is served ends that one alone, and is told") {
  FailingBackend backend;
  ServerThread server;
  std::string told;
  server.on_loop([&](store::Server& s) {
    s.forward_to(backend);
    s.on_failed([&](store::ConnectionId, const std::string& sentence) { told = sentence; });
    return 0;
  });
  RawPeer witness(server.connect()), victim(server.connect());
  witness.greet();
  victim.greet();
  victim.ask(2, wire::Erase{"k"});
  CHECK(victim.closed_by_server());
  CHECK(server.count([](const auto& counters) { return counters.failed == 1; }));
  CHECK(server.on_loop([&](store::Server&) { return told; }).find("bad_alloc") !=
        std::string::npos);
  CHECK(server.on_loop([&](store::Server&) { return backend.gone; }) == 1);
  Bytes ping;
  wire::encode_frame(ping, {0, wire::Type::ping, 0, 2, 0}, BytesView{});
  witness.say(ping);
  witness.answer<wire::Done>(2);
}

TEST_CASE("a client for which much is held goes when the memory is full, and frees it") {
  store::Limits limits;
  limits.memory = std::make_shared<store::MemoryBudget>();
  limits.memory->max = 1u << 20;
  ServerThread server(limits);
  store::Client witness = server.client();
  RawPeer greedy(server.connect());
  greedy.greet();
  Bytes out;
  wire::encode_header(out, {8u << 20, wire::Set::type, 0, 2, 0});
  out.resize(2u << 20);  // A part of a message, which never comes to its end.
  greedy.say(out);
  CHECK(greedy.closed_by_server());
  CHECK(server.counters().greedy == 1);
  // In small pieces, of which little is held until each is carried out: else this client goes, too.
  const auto fill = [&] {
    for (int i = 0; i < 64; ++i) witness.set("k" + std::to_string(i), Bytes(32u << 10));
  };
  CHECK_THROWS_AS(fill(), Error);
  CHECK(server.on_loop([&](store::Server&) { return limits.memory->refused; }) == 1);
}

TEST_CASE("one address has so many connections, and all of them so many") {
  ServerThread server;
  server.on_loop([](store::Server& s) { return s.limit({.all = 6, .peer = 4}), 0; });
  std::deque<RawPeer> peers;
  for (int i = 0; i < 4; ++i) peers.emplace_back(server.connect()).greet();
  RawPeer crowded(server.connect());
  CHECK(crowded.closed_by_server());
  CHECK(server.count([](const auto& counters) { return counters.crowded == 1; }));
  peers.pop_front();
  // The place is free as soon as the server has seen that it is.
  for (bool in = false; !in;) {
    RawPeer next(server.connect());
    next.say_hello();
    in = next.read(wire::preface_bytes).size() == wire::preface_bytes;
  }
}

TEST_CASE("when there is no room for another, one that is named goes") {
  ServerThread server;
  RawPeer idler(server.connect());
  idler.greet();
  const store::ConnectionId who = server.host.last();
  server.on_loop([who](store::Server& s) {
    s.limit({.all = 1});
    s.on_no_room([who](Clock::time_point) { return who; });
    return 0;
  });
  RawPeer next(server.connect());
  CHECK(idler.closed_by_server());
  next.greet();
}

TEST_CASE("a big namespace that is dropped gives its memory back, a part at a time") {
  store::Limits limits;
  limits.memory = std::make_shared<store::MemoryBudget>();
  ServerThread server(limits);
  const auto used = [&] {
    return server.on_loop([&](store::Server&) { return limits.memory->used(); });
  };
  RawPeer peer(server.connect());
  peer.greet();
  const store::ConnectionId who = server.host.last();
  const std::size_t before = used();
  const auto space = server.on_loop([&](store::Server& s) {
    const auto added = s.add_space(8);
    s.seat(who, added);
    return added;
  });
  wire::MultiSet set;
  std::vector<std::string> keys;
  for (int i = 0; i < 20'000; ++i) keys.push_back("key-" + std::to_string(i));
  set.keys.assign(keys.begin(), keys.end());
  set.values.resize(keys.size());
  peer.ask(2, set);
  peer.answer<wire::Done>(2);
  CHECK(used() > before + 1'000'000);
  server.on_loop([&](store::Server& s) { return s.drop_space(space, "the test is over"), 0; });
  RawPeer witness(server.connect());
  witness.greet();
  const auto deadline = soon();
  while (used() > before + 100'000 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(used() <= before + 100'000);
}

TEST_CASE("one set that wakes many waits takes one value's memory, not one for each") {
  store::Limits limits;
  limits.memory = std::make_shared<store::MemoryBudget>();
  ServerThread server(limits);
  constexpr std::uint64_t waits = 3;
  constexpr std::size_t size = 2u << 20;
  std::deque<RawPeer> readers;
  for (int i = 0; i < 8; ++i) {
    RawPeer& reader = readers.emplace_back(server.connect());
    reader.greet();
    for (std::uint64_t each = 2; each < 2 + waits; ++each) reader.ask(each, wire::WaitGet{{}, "k"});
    reader.ask(100, wire::Watch{"k"});
    reader.ask(101, wire::Count{});
    reader.answer<wire::Number>(101);
  }
  Bytes value(size);
  value.front() = std::byte{1};
  value.back() = std::byte{2};
  server.client().set("k", value);
  const auto used = server.on_loop([&](store::Server&) { return limits.memory->used(); });
  CHECK(used < 4 * size);
  const auto [header, payload] = readers.front().frame();
  CHECK(header.request == 100);
  const auto changed = wire::decode<wire::Changed>(payload);
  REQUIRE(changed);
  CHECK(std::ranges::equal(changed->value.value_or(BytesView()), value));
  const auto [next, found] = readers.front().frame();
  CHECK(next.request == 2);
  REQUIRE(wire::decode<wire::Found>(found));
  CHECK(std::ranges::equal(wire::decode<wire::Found>(found)->value, value));
}

namespace {

class NoOwner final : public store::Connection::Owner {
 public:
  void on_dirty(store::Connection&) noexcept override {}
  std::vector<Bytes>& spare_buffers() override { return spare_; }

 private:
  std::vector<Bytes> spare_;
};

}  // namespace

TEST_CASE("what others cause to be said to a connection is counted as it is said") {
  const auto memory = std::make_shared<store::MemoryBudget>();
  memory->max = 1u << 20;
  NoOwner owner;
  store::Connection connection(1, {}, owner);
  connection.charge = store::MemoryCharge(memory);
  for (int i = 0; i < 1000; ++i) {
    Bytes& out = connection.buffer();
    out.resize(out.size() + 2048);
  }
  CHECK(connection.greedy());
  CHECK(connection.held_bytes() < memory->max + (256u << 10));
}
