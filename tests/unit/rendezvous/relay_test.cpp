// Two agents and the store they share: what their workers see of it, and what goes over the wire.
#include "tests/support/expect.hpp"
#include "tests/support/raw_peer.hpp"
#include "tests/support/relay_node.hpp"
#include "tests/support/store_server.hpp"
#include "tests/support/tcp_proxy.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

using testing::contains;

/// Two nodes of `local` ranks each, and a client for each rank.
struct Job {
  explicit Job(int local = 4) : size(2 * local) {
    for (int node = 0; node < 2; ++node) {
      proxies.push_back(std::make_unique<TcpProxy>(server.native_address));
      nodes.push_back(std::make_unique<RelayNode>(proxies.back()->address(), node * local, local,
                                                  size, 500 + static_cast<std::uint64_t>(node)));
    }
    for (int rank = 0; rank < size; ++rank) clients.push_back(node_of(rank).client(rank));
    for (auto& node : nodes) REQUIRE(node->becomes_connected());
  }
  RelayNode& node_of(int rank) { return *nodes.at(static_cast<std::size_t>(rank * 2 / size)); }
  store::Client& of(int rank) { return *clients.at(static_cast<std::size_t>(rank)); }
  /// A connection to a node's agent that says what it likes.
  RawPeer by_name(int node) {
    return RawPeer(
        connect_unix(nodes.at(static_cast<std::size_t>(node))->host().socket_name(), soon()));
  }
  /// `act` for each of these ranks, each in a thread of its own.
  void at_once(const std::vector<int>& ranks, const std::function<void(int)>& act) {
    std::vector<std::jthread> threads;
    for (const int rank : ranks) threads.emplace_back([&act, rank] { act(rank); });
  }
  std::vector<int> ranks() const {
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    return all;
  }

  const int size;
  ServerThread server;
  std::vector<std::unique_ptr<TcpProxy>> proxies;
  std::vector<std::unique_ptr<RelayNode>> nodes;
  std::vector<std::unique_ptr<store::Client>> clients;
};

}  // namespace

TEST_CASE("every request of a worker is carried out in the store of the job") {
  Job job;
  store::Client& a = job.of(0);
  store::Client& b = job.of(7);
  a.set("k", as_bytes("v"));
  CHECK(text(b.get("k")) == "v");
  CHECK(a.add("n", 3) == 3);
  CHECK(b.add("n", 4) == 7);
  CHECK(b.append("k", as_bytes("w")) == 2);
  CHECK(a.compare_set("k", as_bytes("vw"), as_bytes("x")));
  CHECK_FALSE(b.compare_set("k", as_bytes("vw"), as_bytes("y")));
  CHECK(b.list("") == std::vector<std::string>{"k", "n"});
  a.multi_set(std::vector<std::string>{"p", "q"}, std::vector<Bytes>{Bytes(1), Bytes(2)});
  CHECK(b.multi_get(std::vector<std::string>{"p", "q", "r"}).at(1)->size() == 2);
  CHECK(a.erase("p"));
  b.push("queue", as_bytes("1"));
  CHECK(a.queue_size("queue") == 1);
  CHECK(text(a.pop("queue", soon())) == "1");
  CHECK_FALSE(a.try_pop("queue"));
  const Bytes big(wire::value_bytes_max, std::byte{7});
  a.set("big", big);
  CHECK(b.get("big") == big);
  const auto [code, sentence] =
      failure([&] { a.wait("never", Clock::now() + std::chrono::milliseconds(50)); });
  CHECK(code == Errc::timeout);
  CHECK(contains(sentence, "waiting for 'never'"));
  CHECK(failure([&] { a.add("k", 1); }).first == Errc::refused);
}

TEST_CASE("eight ranks on two nodes take two messages for a barrier, and two for an all_gather") {
  Job job;
  for (int turn = 0; turn < 20; ++turn) {
    std::array<std::uint64_t, 2> before{job.nodes[0]->requests(), job.nodes[1]->requests()};
    job.at_once(job.ranks(), [&](int rank) { job.of(rank).barrier("b", rank, 8, soon()); });
    std::array<std::uint64_t, 2> after{job.nodes[0]->requests(), job.nodes[1]->requests()};
    CHECK(after[0] - before[0] - 1 == 1);
    CHECK(after[1] - before[1] - 1 == 1);
    job.at_once(job.ranks(), [&](int rank) {
      const auto all =
          job.of(rank).all_gather("g", rank, 8, as_bytes(std::to_string(rank)), soon());
      REQUIRE(all.size() == 8);
      for (int i = 0; i < 8; ++i) {
        CHECK(text(all[static_cast<std::size_t>(i)]) == std::to_string(i));
      }
    });
    CHECK(job.nodes[0]->requests() - after[0] - 1 == 1);
    CHECK(job.nodes[1]->requests() - after[1] - 1 == 1);
  }
}

TEST_CASE("what one all_gather hands out has the limit that it has without nodes between") {
  Job job(2);
  const Bytes blob(6u << 20);
  job.at_once(job.ranks(), [&](int rank) {
    CHECK(contains(failure([&] { job.of(rank).all_gather("g", rank, 4, blob, soon()); }).second,
                   "all contributions together have 25165840 bytes, more than 15728640"));
  });
}

TEST_CASE("groups that are not the world are not held up") {
  Job job;
  // Ranks 0 and 1 of one node, twice as many as there are in their group; then one of each node.
  job.at_once({0, 1}, [&](int rank) { job.of(rank).barrier("pair", rank, 2, soon()); });
  job.at_once({3, 4}, [&](int rank) { job.of(rank).barrier("across", rank - 3, 2, soon()); });
  // All ranks, counted backwards: as quick as those of the world.
  const auto before = Clock::now();
  job.at_once(job.ranks(), [&](int rank) {
    job.of(rank).barrier("backwards", 7 - rank, 8, before + std::chrono::hours(1));
  });
}

TEST_CASE("who waits in vain is told who is missing on all nodes") {
  Job job;
  const auto deadline = Clock::now() + std::chrono::milliseconds(300);
  job.at_once({0, 1, 5, 6, 7}, [&](int rank) {
    const auto [code, sentence] = failure([&] { job.of(rank).barrier("b", rank, 8, deadline); });
    CHECK(code == Errc::timeout);
    CHECK(contains(sentence, "waiting for 2, 3 and 4"));
  });
  // A contribution stays: those who come now find the others there.
  job.at_once({2, 3, 4}, [&](int rank) { job.of(rank).barrier("b", rank, 8, soon()); });
}

TEST_CASE("a rank with more patience than the others waits on") {
  Job job;
  std::jthread patient([&] { job.of(0).barrier("b", 0, 8, soon()); });
  CHECK(failure([&] { job.of(1).barrier("b", 1, 8, Clock::now() + 100ms); }).first ==
        Errc::timeout);
  job.at_once({2, 3, 4, 5, 6, 7}, [&](int rank) { job.of(rank).barrier("b", rank, 8, soon()); });
}

TEST_CASE("who waits for a lost rank of its node fails at once") {
  Job job;
  std::jthread killer([&] {
    job.nodes[0]->on_loop(
        [&] { job.nodes[0]->host().publish_loss(3, "here", Departure::because("killed")); });
  });
  job.at_once({0, 1, 2}, [&](int rank) {
    const auto [code, sentence] = failure([&] { job.of(rank).barrier("b", rank, 8, soon()); });
    CHECK(code == Errc::peer_lost);
    CHECK(contains(sentence, "rank 3 on here is lost: killed"));
  });
}

TEST_CASE("who waits for a lost rank of another node hears it from the store") {
  Job job;
  const auto lose = [&] {
    for (auto& node : job.nodes) {
      node->on_loop([&] { node->host().publish_loss(7, "there", Departure::because("killed")); });
    }
    job.server.on_loop([&](store::Server& server) {
      server.lose({7}, 8, "on there is lost: killed");
      return 0;
    });
  };
  std::jthread killer(lose);
  job.at_once({0, 1, 4}, [&](int rank) {
    const auto [code, sentence] = failure([&] { job.of(rank).barrier("b", rank, 8, soon()); });
    CHECK(code == Errc::peer_lost);
    CHECK(contains(sentence, "rank 7 on there is lost: killed"));
  });
}

TEST_CASE("workers that wait for the same key ask once") {
  Job job;
  const auto before = job.nodes[0]->requests();
  std::vector<std::jthread> waiters;
  for (int rank = 0; rank < 4; ++rank) {
    waiters.emplace_back([&, rank] { CHECK(text(job.of(rank).wait("k", soon())) == "v"); });
  }
  // One that gives up early asks for itself, or is answered when its time comes.
  CHECK(failure([&] { job.of(0).wait("k", Clock::now() + 50ms); }).first == Errc::timeout);
  job.of(4).set("k", as_bytes("v"));
  waiters.clear();
  CHECK(job.nodes[0]->requests() - before - 1 <= 4);
}

TEST_CASE("a dead worker's lease ends although its agent lives, and a live one's goes on") {
  Job job(2);
  job.of(2).set_leased("alive", as_bytes("x"), 300ms);
  job.of(1).set_leased("left", as_bytes("x"), 60s);
  job.clients[0].reset();
  // A worker that is killed says no goodbye, as a client would, and does not renew either.
  RawPeer dead = job.by_name(0);
  RawPeer mute = job.by_name(0);
  dead.greet(4242);
  mute.greet(4343);
  dead.ask(1, wire::SetLeased{"dead", as_bytes("x"), 300});
  mute.ask(1, wire::SetLeased{"mute", as_bytes("x"), 300});
  dead.ask(2, wire::SetLeased{"moved", as_bytes("x"), 300});
  CHECK(job.of(3).wait("mute", soon()).size() == 1);
  CHECK(job.of(3).wait("moved", soon()).size() == 1);
  job.of(1).set_leased("moved", as_bytes("y"), 60s);
  CHECK(text(job.of(3).wait("dead", soon())) == "x");
  const auto deadline = soon();
  const auto gone = [&](const std::string& key) {
    while (job.of(3).get(key)) {
      if (Clock::now() > deadline) return false;
    }
    return true;
  };
  dead.hang_up();
  CHECK(gone("dead"));
  CHECK(gone("mute"));
  CHECK(text(job.of(3).get("moved")) == "y");
  job.clients[1].reset();
  CHECK(gone("left"));
  // Longer than its lease: it is renewed over two hops.
  CHECK(text(job.of(3).get("alive")) == "x");
}

TEST_CASE("a request waits while the store is away, and its deadline holds") {
  Job job(1);
  job.of(0).set("k", as_bytes("v"));
  job.proxies[0]->refuse(true);
  job.proxies[0]->cut();
  REQUIRE(job.nodes[0]->becomes_connected(false));
  std::jthread waits([&] { CHECK(job.of(0).add("n", 1) == 1); });
  const auto [code, sentence] = failure([&] { job.of(0).wait("never", Clock::now() + 200ms); });
  CHECK(code == Errc::timeout);
  CHECK(contains(sentence, "waiting for 'never'; the rendezvous has not been reachable for 0 s ("));
  CHECK(contains(sentence, "the rendezvous at 127.0.0.1:"));
  job.proxies[0]->refuse(false);
  waits.join();
  CHECK(text(job.of(0).get("k")) == "v");
}

TEST_CASE("a store that will not come back: who waits for it hears so, and who asks it later") {
  Job job(2);
  job.of(0).set("k", as_bytes("v"));
  job.proxies[0]->refuse(true);
  job.proxies[0]->cut();
  REQUIRE(job.nodes[0]->becomes_connected(false));
  const auto is_told = [](const std::function<void()>& call) {
    const auto [code, sentence] = failure(call);
    CHECK(code == Errc::peer_lost);
    CHECK(sentence.ends_with("': the job's store is gone: its node is lost"));
  };
  {
    std::vector<std::jthread> waiting;
    waiting.emplace_back([&] { is_told([&] { static_cast<void>(job.of(0).get("k")); }); });
    waiting.emplace_back([&] { is_told([&] { job.of(1).wait("never", soon()); }); });
    job.nodes[0]->on_loop([&] { job.nodes[0]->host().lose_store("its node is lost"); });
  }
  is_told([&] { job.of(0).set("k", as_bytes("w")); });
  is_told([&] { job.of(1).wait("never", soon()); });
  // The other node's store is where it was.
  CHECK(text(job.of(2).get("k")) == "v");
}

TEST_CASE(
    "a store that was forgotten: ranks are found again, and who waits for what is gone is told") {
  Job job(1);
  ServerThread fresh;
  fresh.host.memory = 1;
  const std::vector<std::string> keys{"mesh/0", "member/0"};
  const std::vector<Bytes> values{Bytes(as_bytes("here:1").begin(), as_bytes("here:1").end()),
                                  Bytes(2)};
  job.of(0).multi_set(keys, values);
  CHECK(job.of(0).compare_set("mesh/0/1", std::nullopt, as_bytes("here:2")));
  job.of(0).set("mine", as_bytes("v"));
  for (auto& proxy : job.proxies) {
    proxy->refuse(true);
    proxy->cut();
    proxy->lead_to(fresh.native_address);
  }
  for (auto& node : job.nodes) REQUIRE(node->becomes_connected(false));
  std::jthread asks([&] { CHECK(job.of(0).add("n", 1) == 1); });
  for (auto& proxy : job.proxies) proxy->refuse(false);
  asks.join();
  CHECK(text(job.of(1).wait("mesh/0", soon())) == "here:1");
  CHECK(text(job.of(1).wait("mesh/0/1", soon())) == "here:2");
  CHECK(job.of(1).wait("member/0", soon()).size() == 2);
  CHECK_FALSE(job.of(0).get("mine"));
  const auto [code, sentence] = failure([&] { job.of(1).wait("mine", Clock::now() + 200ms); });
  CHECK(code == Errc::timeout);
  CHECK(contains(sentence, "'mine'"));
  CHECK(contains(sentence, "the rendezvous was started again and has forgotten what was set"));
}

TEST_CASE("a change that is made while nobody is connected is not missed by who watches") {
  Job job(1);
  job.of(1).set("w", as_bytes("1"));
  std::vector<std::string> seen;
  // The first call subscribes; the answer to the get behind it says that it has.
  CHECK(failure([&] { job.of(0).watch("w", Clock::now()); }).first == Errc::timeout);
  job.of(0).get("w");
  job.of(0).get("w");
  job.proxies[0]->refuse(true);
  job.proxies[0]->cut();
  REQUIRE(job.nodes[0]->becomes_connected(false));
  job.of(1).set("w", as_bytes("2"));
  job.proxies[0]->refuse(false);
  CHECK(text(job.of(0).watch("w", soon()).value) == "2");
  job.of(1).set("w", as_bytes("3"));
  CHECK(text(job.of(0).watch("w", soon()).value) == "3");
  job.of(1).erase("w");
  CHECK(job.of(0).watch("w", soon()).kind == KeyChange::Kind::deleted);
}

TEST_CASE("garbage of a worker's ends that worker alone") {
  Job job(1);
  RawPeer mad = job.by_name(0);
  mad.greet();
  Bytes said;
  wire::encode_frame(said, {0, wire::Barrier::type, 0, 1, 0}, as_bytes("no barrier"));
  mad.say(said);
  CHECK(mad.closed_by_server());
  job.of(0).set("k", as_bytes("v"));
  CHECK(job.proxies[0]->accepted() == 1);
}

TEST_CASE("a new epoch knows nothing of the old one") {
  Job job(1);
  std::jthread waits(
      [&] { CHECK(failure([&] { job.of(0).wait("k", soon()); }).first == Errc::peer_lost); });
  job.of(0).get("there by now");
  job.nodes[0]->on_loop([&] { job.nodes[0]->host().begin_attempt(job.nodes[0]->identity(7)); });
  waits.join();
  job.clients[0] = job.nodes[0]->client(0, 77);
  job.of(0).set("k", as_bytes("v"));
  CHECK(text(job.of(1).get("k")) == "v");
}

TEST_CASE(
    "a worker that comes back to its agent repeats what was not answered, and it counts once") {
  Job job(1);
  job.proxies[0]->refuse(true);
  job.proxies[0]->cut();
  REQUIRE(job.nodes[0]->becomes_connected(false));
  RawPeer first = job.by_name(0);
  first.greet(99);
  first.ask(1, wire::Add{"n", 5});
  first.ask(2, wire::Add{"n", 6});
  first.ask(3, wire::Renew{});
  first.answer<wire::Done>(3);
  SUBCASE("while they are on their way") {
    RawPeer again = job.by_name(0);
    again.greet(99);
    again.ask(1, wire::Add{"n", 5});
    again.ask(2, wire::Add{"n", 6});
    again.ask(4, wire::Renew{});
    again.answer<wire::Done>(4);
    job.proxies[0]->refuse(false);
    CHECK(again.answer<wire::Number>(1).value == 5);
    CHECK(again.answer<wire::Number>(2).value == 11);
  }
  SUBCASE("when they were answered while it was away") {
    first.hang_up();
    job.proxies[0]->refuse(false);
    const auto deadline = soon();
    while (text(job.of(1).get("n")) != "11") REQUIRE(Clock::now() < deadline);
    RawPeer again = job.by_name(0);
    again.greet(99);
    again.ask(1, wire::Add{"n", 5});
    CHECK(again.answer<wire::Number>(1).value == 5);
    again.ask(2, wire::Add{"n", 6});
    CHECK(again.answer<wire::Number>(2).value == 11);
    again.ask(2, wire::Add{"n", 6});
    CHECK(again.answer<wire::Number>(2).value == 11);
  }
  CHECK(text(job.of(1).get("n")) == "11");
}

TEST_CASE("a worker has a limit of requests that wait, and may end them") {
  Job job(1);
  RawPeer peer = job.by_name(0);
  peer.greet(7);
  for (std::uint64_t i = 1; i <= 4096; ++i) {
    peer.ask(i, wire::WaitGet{{}, "k" + std::to_string(i)});
  }
  peer.ask(5000, wire::Get{"x"});
  CHECK(peer.answer<wire::Failed>(5000).sentence ==
        "this client waits for 4096 things already, which is the limit");
  peer.ask(5001, wire::Cancel{17});
  CHECK(peer.answer<wire::Number>(5001).value == 1);
  peer.ask(5002, wire::Cancel{17});
  CHECK(peer.answer<wire::Number>(5002).value == 0);
  peer.ask(5003, wire::Pop{{}, "queue"});
  peer.ask(5004, wire::Cancel{5003});
  CHECK(peer.answer<wire::Number>(5004).value == 1);
  job.of(1).push("queue", as_bytes("x"));
  CHECK(job.of(1).queue_size("queue") == 1);
  job.of(1).set("k17", as_bytes("x"));
  job.of(1).set("k18", as_bytes("y"));
  const auto [header, payload] = peer.frame();
  CHECK(header.request == 18);
  CHECK(header.type == wire::Type::found);
}

TEST_CASE("a worker may ask for much at once") {
  Job job(1);
  const Bytes big(wire::value_bytes_max, std::byte{7});
  job.of(1).set("big", big);
  job.at_once(std::vector<int>(12, 0), [&](int) { CHECK(job.of(0).get("big") == big); });
}
