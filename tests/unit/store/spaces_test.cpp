// A server of several native namespaces: who sits where, and what becomes of those that wait.
#include "tests/support/raw_peer.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/store_server.hpp"

#include <atomic>
#include <memory>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <ifaddrs.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

store::SpaceId add_space(ServerThread& server, std::uint64_t epoch) {
  return server.on_loop([&](store::Server& s) { return s.add_space(epoch); });
}
bool seat(ServerThread& server, store::ConnectionId who, store::SpaceId space) {
  return server.on_loop([&](store::Server& s) { return s.seat(who, space); });
}
void drop(ServerThread& server, store::SpaceId space, std::string_view why) {
  server.on_loop([&](store::Server& s) {
    s.drop_space(space, why);
    return true;
  });
}

/// A greeted peer and the server's number for it.
struct Seated {
  Seated(ServerThread& server, std::uint64_t session, store::SpaceId space)
      : peer(server.connect()) {
    peer.greet(session);
    who = server.host.last();
    CHECK(seat(server, who, space));
  }
  RawPeer peer;
  store::ConnectionId who = 0;
};

}  // namespace

TEST_CASE("namespaces do not see each other, and answer with their epoch") {
  ServerThread server;
  const auto one = add_space(server, 11), two = add_space(server, 22);
  Seated a(server, 1, one), b(server, 2, two);
  a.peer.ask(1, wire::Set{"k", as_bytes("of a")});
  const auto header = a.peer.frame().first;
  CHECK(header.type == wire::Type::done);
  CHECK(header.epoch == 11);
  b.peer.ask(1, wire::Get{"k"}, 22);
  b.peer.answer<wire::Absent>(1);
  CHECK(server.on_loop([&](store::Server& s) { return s.usage(one).keys; }) == 1);
  CHECK(server.on_loop([&](store::Server& s) { return s.usage(two).keys; }) == 0);

  // Back again, everything is as it was.
  CHECK(seat(server, b.who, one));
  b.peer.ask(2, wire::Get{"k"});
  CHECK(as_text(b.peer.frame().second).ends_with("of a"));
}

TEST_CASE("another epoch is refused, and so is who sits nowhere") {
  ServerThread server;
  const auto space = add_space(server, 11);
  Seated a(server, 1, space);
  a.peer.ask(1, wire::Get{"k"}, 10);
  const auto old = a.peer.answer<wire::Failed>(1);
  CHECK(old.code == Errc::refused);
  CHECK(old.sentence == "a message of epoch 10 came in epoch 11");

  CHECK(seat(server, a.who, store::no_space));
  a.peer.ask(2, wire::Get{"k"});
  CHECK(a.peer.answer<wire::Failed>(2).sentence == "not admitted to a round yet");
  // Messages that are not the store's go on.
  a.peer.ask(3, wire::Abort{Errc::aborted, "x"});
  CHECK(server.host.heard("hello -"));
  CHECK_FALSE(seat(server, a.who, 99));
  CHECK_FALSE(seat(server, 99, space));
}

TEST_CASE("whoever waits in a namespace that is dropped, or leaves it, is told") {
  ServerThread server;
  const auto space = add_space(server, 11), next = add_space(server, 12);
  Seated a(server, 1, space), b(server, 2, space);
  a.peer.ask(1, wire::WaitGet{{}, "k"});
  a.peer.ask(2, wire::Barrier{"b", 0, 2, {}, {0}});
  a.peer.ask(3, wire::Count{});
  a.peer.answer<wire::Number>(3);  // By now it waits.
  b.peer.ask(1, wire::Watch{"k"});
  b.peer.ask(2, wire::Count{});
  b.peer.answer<wire::Number>(2);

  CHECK(seat(server, b.who, next));
  const auto [header, payload] = b.peer.frame();
  CHECK(header.request == 1);
  CHECK(header.epoch == 11);
  CHECK(header.flags == wire::reply);  // And nothing more.
  CHECK(wire::decode<wire::Failed>(payload)->code == Errc::aborted);

  drop(server, space, "the round is over: node b was lost");
  for (const std::uint64_t request : {1u, 2u}) {
    const auto failed = a.peer.answer<wire::Failed>(request);
    CHECK(failed.code == Errc::aborted);
    CHECK(failed.sentence == "the round is over: node b was lost");
  }
  a.peer.ask(4, wire::Get{"k"});
  CHECK(a.peer.answer<wire::Failed>(4).sentence == "not admitted to a round yet");
  CHECK_FALSE(seat(server, a.who, space));
  CHECK(seat(server, a.who, next));
  a.peer.ask(5, wire::Get{"k"}, 12);
  a.peer.answer<wire::Absent>(5);
}

TEST_CASE("a repeated change counts once in its namespace, whatever happened in between") {
  ServerThread server;
  const auto space = add_space(server, 11), other = add_space(server, 12);
  auto a = std::make_unique<Seated>(server, 5, space);
  a->peer.ask(1, wire::Add{"n", 1});
  CHECK(a->peer.answer<wire::Number>(1).value == 1);
  CHECK(seat(server, a->who, other));
  a->peer.ask(1, wire::Add{"n", 10});  // The number is new here.
  CHECK(a->peer.answer<wire::Number>(1).value == 10);
  CHECK(seat(server, a->who, space));
  a->peer.ask(1, wire::Add{"n", 1});
  CHECK(a->peer.answer<wire::Number>(1).value == 1);
  a = std::make_unique<Seated>(server, 5, space);
  a->peer.ask(1, wire::Add{"n", 1});
  CHECK(a->peer.answer<wire::Number>(1).value == 1);
  a->peer.ask(2, wire::Add{"n", 1});
  CHECK(a->peer.answer<wire::Number>(2).value == 2);
}

TEST_CASE("deadlines and losses of one namespace among a thousand") {
  ServerThread server;
  store::SpaceId space = 0;
  for (std::uint64_t epoch = 1; epoch <= 1000; ++epoch) space = add_space(server, epoch);
  Seated a(server, 1, space), b(server, 2, space), elsewhere(server, 3, space - 1);
  a.peer.ask(1, wire::WaitGet{{1000}, "k"});
  CHECK(a.peer.answer<wire::Failed>(1).code == Errc::timeout);
  a.peer.ask(2, wire::SetLeased{"leased", as_bytes("v"), 100});
  a.peer.answer<wire::Done>(2);
  b.peer.ask(1, wire::Watch{"leased"});
  CHECK(b.peer.answer<wire::Changed>(1).kind == KeyChange::Kind::deleted);

  elsewhere.peer.ask(1, wire::Barrier{"b", 0, 2, {}, {0}});
  a.peer.ask(3, wire::Barrier{"b", 0, 2, {}, {0}});
  a.peer.ask(4, wire::Count{});
  a.peer.answer<wire::Number>(4);
  server.on_loop([&](store::Server& s) {
    s.lose({1}, 2, "is lost", space);
    return true;
  });
  CHECK(a.peer.answer<wire::Failed>(3).code == Errc::peer_lost);
  elsewhere.peer.ask(2, wire::Count{});
  elsewhere.peer.answer<wire::Number>(2);  // Its barrier goes on.
}

TEST_CASE("PyTorch's store admits loopback and the peers that it was told of") {
  ifaddrs* interfaces = nullptr;
  REQUIRE(::getifaddrs(&interfaces) == 0);
  std::string own;
  for (const ifaddrs* i = interfaces; i != nullptr && own.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    Address address;
    std::memcpy(&address.storage, i->ifa_addr, sizeof(sockaddr_in));
    address.size = sizeof(sockaddr_in);
    if (!address.is_loopback()) own = address.host();
  }
  ::freeifaddrs(interfaces);
  if (own.empty()) return testing::skipped("this machine has no address but loopback");

  ServerThread server;
  unique_fd listener = listen_tcp(resolve(own, 0).at(0));
  const Address beyond = local_address(listener.get());
  unique_fd dual = listen_tcp(resolve(own, 0).at(0));
  const Address both = local_address(dual.get());
  const auto restrict_to = [&](std::optional<std::vector<std::string>> hosts) {
    server.on_loop([&](store::Server& s) {
      s.restrict_c10d(std::move(hosts));
      return true;
    });
  };
  server.on_loop([&](store::Server& s) {
    s.listen(std::move(listener), {.native = false, .c10d = true});
    s.listen(std::move(dual), {.native = true, .c10d = true});
    return true;
  });
  RawPeer early(connect_tcp(beyond, soon()));
  CHECK(server.count([](const auto& c) { return c.silent == 1; }));
  restrict_to(std::vector<std::string>{"203.0.113.1"});
  CHECK(early.closed_by_server());
  RawPeer stranger(connect_tcp(beyond, soon()));
  CHECK(stranger.closed_by_server());
  CHECK(server.counters().strangers == 2);
  // On a port of both, the native protocol is nobody's secret.
  RawPeer agent(connect_tcp(both, soon()));
  agent.greet();
  RawPeer impostor(connect_tcp(both, soon()));
  impostor.say(std::string_view("\x01\x00", 2));
  CHECK(impostor.closed_by_server());
  RawPeer near(connect_tcp(server.both_address, soon()));
  CHECK(server.count([](const auto& c) { return c.silent == 1; }));

  restrict_to(std::vector<std::string>{own});
  RawPeer peer(connect_tcp(beyond, soon()));
  CHECK(server.count([](const auto& c) { return c.silent == 2; }));
  restrict_to(std::nullopt);
  CHECK(server.counters().strangers == 4);
}
