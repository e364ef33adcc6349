// A server must withstand nonsense, silence, those who do not read, those who come twice.
#include "tests/support/raw_peer.hpp"
#include "tests/support/store_server.hpp"

#include <atomic>
#include <cstdio>
#include <deque>
#include <fstream>
#include <random>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

using namespace dlaunch;
using namespace dlaunch::test;

TEST_CASE("garbage is closed and counted, and others do not notice") {
  ServerThread server;
  store::Client witness = server.client();
  const std::string_view nonsense[] = {
      "GET / HTTP/1.1\r\n\r\n",
      "DLCX\x01\x00\x00\x00",
      std::string_view("\x16\x03\x01", 3),
      std::string_view("\0\0\0\0\0\0\0\0", 8),
  };
  std::uint64_t count = 0;
  for (const auto& bytes : nonsense) {
    RawPeer peer(server.connect());
    peer.say(bytes);
    CHECK(peer.closed_by_server());
    ++count;
  }
  {
    // Before HELLO nothing longer than 1 KiB, and nothing but HELLO.
    Bytes out;
    wire::encode_preface(out);
    wire::encode_header(out, {wire::unauthenticated_bytes_max + 1, wire::Type::hello, 0, 0, 0});
    RawPeer peer(server.connect());
    peer.say(out);
    CHECK(peer.closed_by_server());
    out.clear();
    wire::encode_preface(out);
    wire::encode_frame(out, {}, wire::Get{"k"});
    RawPeer early(server.connect());
    early.say(out);
    CHECK(early.closed_by_server());
    count += 2;
  }
  for (const std::uint32_t length : {0xFFFFFFFFu, 0x80000000u, (16u << 20) + 1}) {
    RawPeer peer(server.connect());
    peer.greet();
    Bytes out;
    wire::encode_header(out, {length, wire::Set::type, 0, 1, 0});
    peer.say(out);
    CHECK(peer.closed_by_server());
    ++count;
  }
  {
    // A payload that is no such message, with a count it does not have.
    RawPeer peer(server.connect());
    peer.greet();
    Bytes out;
    wire::encode_frame(out, {0, wire::MultiGet::type, 0, 1, 0}, Bytes(12, std::byte{0xFF}));
    peer.say(out);
    CHECK(peer.closed_by_server());
    ++count;
  }
  CHECK(server.counters().garbage == count);
  witness.set("k", as_bytes("v"));
  CHECK(text(witness.get("k")) == "v");
}

TEST_CASE("random bytes behind a welcome end nobody but their sender") {
  ServerThread server;
  store::Client witness = server.client();
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    RawPeer peer(server.connect());
    peer.greet();
    Bytes noise(64 + random() % 512);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    noise[3] = std::byte{0};  // A length that can be.
    peer.say(noise);
    peer.hang_up();
  }
  witness.set("k", {});
  CHECK(witness.get("k"));
}

TEST_CASE("a newer version, an unknown message and an older epoch are told apart from garbage") {
  ServerThread server;
  {
    RawPeer peer(server.connect());
    Bytes out;
    wire::encode_preface(out);
    out[4] = std::byte{99};
    peer.say(out);
    CHECK(peer.read(wire::preface_bytes).size() == wire::preface_bytes);
    const auto failed = peer.answer<wire::Failed>(0);
    CHECK(failed.code == Errc::version);
    CHECK(failed.sentence.find("99") != std::string::npos);
    CHECK(server.host.heard("other version 99"));
    CHECK(peer.closed_by_server());
  }
  RawPeer peer(server.connect());
  peer.greet();
  Bytes out;
  wire::encode_frame(out, {0, static_cast<wire::Type>(4000), 0, 1, 0}, BytesView{});
  peer.say(out);
  CHECK(peer.answer<wire::Failed>(1).code == Errc::unsupported);
  peer.ask(2, wire::Get{"k"}, 6);  // The host welcomes to epoch 7.
  CHECK(peer.answer<wire::Failed>(2).code == Errc::refused);
  peer.ask(3, wire::Get{"k"}, 7);
  peer.answer<wire::Absent>(3);
  CHECK(server.counters().garbage == 0);
}

TEST_CASE("a message may come in any pieces, and many at once") {
  ServerThread server;
  RawPeer peer(server.connect());
  peer.greet();
  Bytes out;
  for (std::uint64_t request = 1; request <= 200; ++request) {
    wire::encode_frame(out, {0, {}, 0, request, 0}, wire::Add{"n", 1});
  }
  peer.say(out);
  for (std::uint64_t request = 1; request <= 200; ++request) {
    CHECK(peer.answer<wire::Number>(request).value == static_cast<std::int64_t>(request));
  }
  out.clear();
  wire::encode_frame(out, {0, {}, 0, 201, 0}, wire::Set{"key", as_bytes("value")});
  for (const std::byte byte : out) peer.say(BytesView(&byte, 1));
  peer.answer<wire::Done>(201);
}

TEST_CASE("a change that is sent again counts once, on this connection and on the next") {
  ServerThread server;
  RawPeer first(server.connect());
  first.greet(42);
  first.ask(1, wire::Add{"n", 5});
  CHECK(first.answer<wire::Number>(1).value == 5);
  first.ask(1, wire::Add{"n", 5});
  CHECK(first.answer<wire::Number>(1).value == 5);
  first.ask(2, wire::Push{"q", as_bytes("only")});
  first.answer<wire::Done>(2);
  first.ask(3, wire::Append{"a", as_bytes("x")});
  CHECK(first.answer<wire::Number>(3).value == 1);
  first.ask(4, wire::TryPop{"q"});
  CHECK(first.answer<wire::Popped>(4).length_before == 1);
  first.ask(5, wire::Pop{{}, "q"});  // Waits, and its connection ends.

  // The new connection takes the session over, though the old one was not missed yet.
  RawPeer second(server.connect());
  second.greet(42);
  CHECK(first.closed_by_server());
  CHECK(server.host.heard("goodbye"));  // As the host is told of one that was replaced.
  second.ask(1, wire::Add{"n", 5});
  CHECK(second.answer<wire::Number>(1).value == 5);
  second.ask(2, wire::Push{"q", as_bytes("only")});
  second.answer<wire::Done>(2);
  second.ask(3, wire::Append{"a", as_bytes("x")});
  CHECK(second.answer<wire::Number>(3).value == 1);
  second.ask(4, wire::TryPop{"q"});
  const auto [header, payload] = second.frame();
  const auto popped = wire::decode<wire::Popped>(payload);
  REQUIRE(popped);
  CHECK(as_text(popped->value.value_or(BytesView{})) == "only");
  second.ask(5, wire::Pop{{}, "q"});  // Was never answered, so it waits again.
  second.ask(6, wire::QueueSize{"q"});
  CHECK(second.answer<wire::Number>(6).value == 0);
  second.ask(7, wire::Add{"n", 1});
  CHECK(second.answer<wire::Number>(7).value == 6);

  // Another session's numbers are its own.
  RawPeer other(server.connect());
  other.greet(43);
  other.ask(1, wire::Add{"n", 5});
  CHECK(other.answer<wire::Number>(1).value == 11);
}

TEST_CASE("who does not read is dropped at a limit, by name, and harms nobody") {
  ServerThread server;
  std::promise<std::pair<store::ConnectionId, std::string>> dropped;
  server.on_loop([&](store::Server& hosted) {
    hosted.on_slow_reader([&](store::ConnectionId who, const std::string& peer) {
      dropped.set_value({who, peer});
    });
  });
  store::Client other = server.client();
  RawPeer watcher(server.connect());
  watcher.greet();
  CHECK(server.host.heard("hello -"));
  const store::ConnectionId watching = server.host.last();
  watcher.ask(1, wire::Watch{"k"});
  const Bytes value(1u << 20);
  // Pushed at it by others: more than sockets hold and the queue may.
  const auto deadline = soon();
  while (server.counters().slow == 0 && Clock::now() < deadline) other.set("k", value);
  CHECK(server.counters().slow == 1);
  CHECK(watcher.closed_by_server());
  const auto [who, peer] = dropped.get_future().get();
  CHECK(who == watching);
  CHECK(peer.starts_with("127.0.0.1:"));

  // By its own requests it only stops itself: they are taken up as it reads.
  RawPeer greedy(server.connect());
  greedy.greet();
  constexpr std::uint64_t requests = 64;
  for (std::uint64_t request = 1; request <= requests; ++request) {
    greedy.ask(request, wire::Get{"k"});
  }
  other.set("k2", {});
  for (std::uint64_t request = 1; request <= requests; ++request) {
    const auto [header, payload] = greedy.frame();
    CHECK(header.request == request);
    CHECK(payload.size() == value.size() + sizeof(std::uint32_t));
  }
  CHECK(server.counters().slow == 1);
}

TEST_CASE("those who connect and say nothing, or a byte now and then, go after three seconds") {
  ServerThread server;
  store::Client witness = server.client();
  std::vector<RawPeer> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(server.connect());
  for (RawPeer& peer : silent) peer.say("DL");
  RawPeer control([&] {
    // A worker's control socket may be silent for ever: the worker need not know us.
    auto pair = socket_pair();
    server.on_loop([&](store::Server& s) { return s.adopt(std::move(pair.second)); });
    return std::move(pair.first);
  }());
  CHECK(server.count([](const auto& counters) { return counters.timed_out == 100; }));
  for (RawPeer& peer : silent) CHECK(peer.closed_by_server());
  witness.set("k", {});
  control.greet();
}

TEST_CASE("the kernel asks a connection that is idle whether it still stands") {
  ServerThread server;
  RawPeer peer(server.connect());
  peer.greet();
  // "0100007F:PORT" of the accepted socket's other end, and when its keepalive timer goes off.
  const std::uint16_t port = local_address(peer.fd()).port();
  constexpr unsigned user_hz = 100, of_keepalive = 2, established = 1;
  int seconds = -1;
  for (const auto deadline = soon(); seconds < 0 && Clock::now() < deadline;) {
    std::ifstream table("/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
      unsigned other_port = 0, state = 0, timer = 0, when = 0;
      if (std::sscanf(line.c_str(), " %*u: %*x:%*x %*x:%x %x %*x:%*x %x:%x", &other_port, &state,
                      &timer, &when) != 4) {
        continue;
      }
      if (other_port != port || state != established || timer != of_keepalive) continue;
      seconds = static_cast<int>(when / user_hz);
    }
  }
  CHECK(seconds >= 0);
  CHECK(seconds <= 30);
}

TEST_CASE("hundreds who say nothing keep nobody out") {
  ServerThread server;
  std::vector<RawPeer> slow;
  for (int i = 0; i < 400; ++i) slow.emplace_back(server.connect());
  std::deque<store::Client> clients;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back(server.connect(), ServerThread::options(0), nullptr, soon());
  }
  for (auto& client : clients) client.add("n", 1);
  CHECK(clients.front().add("n", 0) == 20);
  CHECK(server.counters().timed_out == 0);
}

TEST_CASE("without descriptors those who have said nothing make room") {
  ServerThread server;
  store::Client witness = server.client();
  constexpr std::uint64_t count = 8;
  std::vector<RawPeer> silent;
  for (std::uint64_t i = 0; i < count; ++i) silent.emplace_back(server.connect());
  REQUIRE(server.count([](const auto& counters) { return counters.accepted == count + 1; }));
  unique_fd newcomer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int next = ::dup(0);
  ::close(next);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  CHECK(::connect(newcomer.get(), reinterpret_cast<const sockaddr*>(&server.native_address.storage),
                  server.native_address.size) == 0);
  RawPeer late(std::move(newcomer));
  late.greet();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  witness.add("n", 1);
  CHECK(server.counters().timed_out > 0);
  CHECK(silent.front().closed_by_server());
}

TEST_CASE("without descriptors accepting rests, and goes on when there are some") {
  ServerThread server;
  store::Client witness = server.client();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The test and the server are one process: leave room for the connecting ends only.
  std::vector<unique_fd> connecting;
  for (int i = 0; i < 8; ++i) {
    connecting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  const int next = ::dup(0);
  ::close(next);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  for (auto& fd : connecting) {
    CHECK(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&server.native_address.storage),
                    server.native_address.size) == 0);
  }
  witness.set("k", {});  // Lives on meanwhile.
  const auto accepted = server.counters().accepted;
  witness.add("n", 1);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(accepted == 1);
  CHECK(server.count([](const auto& counters) { return counters.accepted == 9; }));
  RawPeer late(std::move(connecting.front()));
  late.greet();
}

TEST_CASE("a big gather goes to everyone, in order") {
  ServerThread server;
  constexpr int count = 64;
  std::vector<RawPeer> peers;
  for (int i = 0; i < count; ++i) peers.emplace_back(server.connect());
  for (RawPeer& peer : peers) peer.greet();
  for (int i = 0; i < count; ++i) {
    const Bytes blob(10'000 + static_cast<std::size_t>(i), static_cast<std::byte>(i));
    peers[static_cast<std::size_t>(i)].ask(1, wire::AllGather{"g", 0, count, {}, {i}, {blob}});
  }
  for (RawPeer& peer : peers) {
    const auto [header, payload] = peer.frame();
    const auto gathered = wire::decode<wire::Gathered>(payload);
    REQUIRE(gathered);
    REQUIRE(gathered->blobs.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(gathered->blobs[i].size() == 10'000 + i);
      CHECK(gathered->blobs[i].front() == static_cast<std::byte>(i));
    }
  }
}

TEST_CASE("what lies before a hang-up is heard, and then the hang-up") {
  ServerThread server;
  RawPeer peer(server.connect());
  peer.greet();
  // The server looks only when all of it is there: it is told of both at once, and once.
  server.on_loop([&](store::Server&) {
    peer.ask(1, wire::Set{"last", as_bytes("words")});
    CHECK(::shutdown(peer.fd(), SHUT_WR) == 0);
  });
  CHECK(peer.closed_by_server());
  CHECK(server.host.heard("closed"));
  RawPeer other(server.connect());
  other.greet();
  other.ask(2, wire::Get{"last"});
  const auto [header, payload] = other.frame();
  CHECK(header.type == wire::Type::found);
  CHECK(as_text(wire::decode<wire::Found>(payload).value_or(wire::Found{}).value) == "words");
}

TEST_CASE("closed from here: what is queued still arrives") {
  ServerThread server;
  RawPeer peer(server.connect());
  peer.greet();
  const auto who = server.host.last();
  server.on_loop([&](store::Server& s) {
    s.push(who, wire::Type::abort, as_bytes("bye"));
    s.close(who);
    s.push(who, wire::Type::abort, as_bytes("not this"));
  });
  const auto [header, payload] = peer.frame();
  CHECK(header.type == wire::Type::abort);
  CHECK(text(payload) == "bye");
  CHECK(peer.closed_by_server());
  CHECK(server.host.heard("closed"));
}
