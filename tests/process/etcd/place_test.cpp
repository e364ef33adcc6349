// The state in a real etcd: who may write, what becomes of large batches, of members that go, and
// of what was interrupted.
#include "rendezvous/state/etcd/batch.hpp"
#include "rendezvous/state/etcd/etcd_place.hpp"
#include "runtime/base/text_hash.hpp"
#include "tests/process/etcd/etcd.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/state_text.hpp"

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using namespace dlaunch::rendezvous;
using etcd::EtcdPlace;
using etcd::Json;
using etcd::Operation;
using testing::contains;
using testing::shown;

namespace {

Bytes bytes_of(std::string_view text) {
  const BytesView raw = as_bytes(text);
  return {raw.begin(), raw.end()};
}

std::unique_ptr<EtcdPlace> lead(const etcd::Servers& servers, const std::string& identity) {
  return EtcdPlace::lead(servers, identity, {}, [](EtcdPlace::Why, const std::string&) {});
}

/// As somebody else would see or change it.
struct Other {
  explicit Other(const etcd::Servers& servers) : gateway(servers.servers) {}
  Json ask(const char* path, const Json& body) {
    return gateway.ask(path, body, Clock::now() + patience);
  }
  void put(const std::string& key, const std::string& value) {
    ask("/kv/put", Json::object({{"key", etcd::to_base64("/dlaunchd/default/" + key)},
                                 {"value", etcd::to_base64(value)}}));
  }
  Json get(const std::string& key) {
    return ask("/kv/range", Json::object({{"key", etcd::to_base64("/dlaunchd/default/" + key)}}));
  }
  /// As if the leader had not been heard for the lease's time.
  void end_lease() {
    const Json found = get("leader");
    const std::string lease = found.at("kvs").at(0).at("lease").get<std::string>();
    ask("/lease/revoke", Json::object({{"ID", lease}}));
  }
  etcd::Gateway gateway;
};

const std::vector<Change> first = {change::JobOpened{"a", 7}, change::SpaceOpened{1, "a", 7, 3},
                                   change::Stored{1, "k", bytes_of("v"), 0, {}}};

}  // namespace

TEST_CASE("what a leader has written the next one finds, small batches and large ones") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const auto servers = cluster.servers();
  std::string before;
  {
    const auto place = lead(servers, "one");
    const auto memory = place->load().memory;
    CHECK(memory != 0);
    CHECK(place->is_ours());
    REQUIRE(place->write(first) == StatePlace::Wrote::all);
    std::vector<Change> large = {
        change::Stored{1, "large", Bytes(5u << 20, std::byte{'l'}), 0, {}}};
    for (int i = 0; i < 700; ++i) {
      large.emplace_back(change::Stored{1, "k" + std::to_string(i), bytes_of("w"), 0, {}});
      large.emplace_back(change::Pushed{1, "q", bytes_of(std::to_string(i))});
    }
    REQUIRE(place->write(large) == StatePlace::Wrote::all);
    before = shown(EtcdPlace::read(servers));
    CHECK(contains(before, "key k699=w"));
    CHECK(contains(before, "memory " + std::to_string(memory) + "\njob a 7 0 -\n"));
  }
  const auto place = lead(servers, "two");
  CHECK(shown(place->load()) == before);
  REQUIRE(place->write({{change::Popped{1, "q"}, change::Erased{1, "large"}}}) ==
          StatePlace::Wrote::all);
  const std::string after = shown(EtcdPlace::read(servers));
  CHECK_FALSE(contains(after, "entry q 0\n"));
  CHECK_FALSE(contains(after, "key large="));
}

TEST_CASE("one that has been followed by another writes nothing any more") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const auto servers = cluster.servers();
  Other other(servers);
  const auto old = lead(servers, "the old one");
  old->load();
  REQUIRE(old->write(first) == StatePlace::Wrote::all);
  other.end_lease();
  const auto now = lead(servers, "the new one");
  const std::string before = shown(now->load());
  const auto why = [&](const std::vector<Change>& changes) -> std::string {
    try {
      old->write(changes);
    } catch (const StateLost& lost) {
      return lost.what();
    }
    return "";
  };
  CHECK(contains(why({change::Stored{1, "k", bytes_of("stale"), 0, {}}}),
                 "the new one leads now: this dlaunchd does not lead any more, and stops"));
  CHECK_FALSE(old->is_ours());
  CHECK(shown(EtcdPlace::read(servers)) == before);
  REQUIRE(now->write({{change::Stored{1, "k", bytes_of("new"), 0, {}}}}) == StatePlace::Wrote::all);
  CHECK(contains(shown(EtcdPlace::read(servers)), "key k=new"));
}

TEST_CASE("nobody leads while another does, and all are told who") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const auto place = lead(cluster.servers(), "head-1");
  std::stop_source stop;
  std::vector<std::string> said;
  CHECK(EtcdPlace::lead(cluster.servers(), "head-2", stop.get_token(),
                        [&](EtcdPlace::Why why, const std::string& sentence) {
                          CHECK(why == EtcdPlace::Why::another_leads);
                          said.push_back(sentence);
                          stop.request_stop();
                        }) == nullptr);
  REQUIRE(said.size() == 1);
  CHECK(contains(said.front(), "stands by: head-1 leads, with its state in etcd at 127.0.0.1:"));
}

TEST_CASE("a batch of several transactions that was interrupted is made as a whole or not at all") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const auto servers = cluster.servers();
  Other other(servers);
  lead(servers, "one")->load();
  etcd::Rows rows("a test");
  etcd::Batch batch;
  for (const auto& each : first) rows.apply(each, batch);
  auto transactions = batch.transactions();
  for (auto& each : transactions.front()) each.key.insert(0, "rows/");
  const std::string log = etcd::to_bytes(transactions);
  const std::string before = shown(EtcdPlace::read(servers));
  other.put("log/00000000", log);
  SUBCASE("its log was not complete") {
    CHECK(shown(EtcdPlace::read(servers)) == before);
    const auto place = lead(servers, "two");
    CHECK(shown(place->load()) == before);
  }
  SUBCASE("its log was complete") {
    other.put("log", std::to_string(log.size()) + " " + std::to_string(text_hash(log)));
    const std::string after = shown(EtcdPlace::read(servers));
    CHECK(contains(after, "key k=v"));
    const auto place = lead(servers, "two");
    CHECK(shown(place->load()) == after);
  }
  CHECK_FALSE(other.get("log/00000000").contains("kvs"));
  CHECK_FALSE(other.get("log").contains("kvs"));
}

TEST_CASE("members may go while there is a majority, and without one nothing is written") {
  if (!EtcdCluster::is_there()) return;
  EtcdCluster cluster(3);
  const auto place = lead(cluster.servers(), "one");
  place->load();
  REQUIRE(place->write(first) == StatePlace::Wrote::all);
  const std::vector<Change> second = {change::Stored{1, "k", bytes_of("w"), 0, {}}};
  const auto write_in_time = [&] {
    const auto deadline = Clock::now() + patience;
    while (place->write(second) != StatePlace::Wrote::all) REQUIRE(Clock::now() < deadline);
    CHECK(place->obstacle().why.empty());
  };
  cluster.kill(0);
  write_in_time();
  cluster.kill(1);
  CHECK(place->write(second) == StatePlace::Wrote::not_now);
  CHECK(contains(place->obstacle().why, "cannot be reached ("));
  CHECK(contains(place->obstacle().why, "): nothing is changed until it can"));
  cluster.start(1);
  write_in_time();
  CHECK(contains(shown(EtcdPlace::read(cluster.servers())), "key k=w"));
}

TEST_CASE("what a member was asked before it stood still is not made when it goes on") {
  if (!EtcdCluster::is_there()) return;
  EtcdCluster cluster(3);
  const auto servers = cluster.servers();
  const auto place = lead(servers, "one");
  place->load();
  REQUIRE(place->write(first) == StatePlace::Wrote::all);
  const auto write = [&](const std::string& value) {
    const auto deadline = Clock::now() + patience;
    const std::vector<Change> changes = {change::Stored{1, "k", bytes_of(value), 0, {}}};
    while (place->write(changes) != StatePlace::Wrote::all) REQUIRE(Clock::now() < deadline);
  };
  for (int round = 0; round < 3; ++round) {
    // The one that is asked first, and whichever leads among the members, is stopped at some time.
    cluster.send(round, SIGSTOP);
    write("old");
    write("new");
    cluster.send(round, SIGCONT);
    etcd::Gateway late({servers.servers[static_cast<std::size_t>(round)]});
    late.ask("/kv/range", Json::object({{"key", "YQ=="}}), Clock::now() + patience);
    CHECK(contains(shown(EtcdPlace::read(servers)), "key k=new"));
  }
}

TEST_CASE("the state says which version it has, and a later one is not touched") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  const auto servers = cluster.servers();
  Other other(servers);
  {
    const auto place = lead(servers, "one");
    place->load();
    const std::vector<Change> drained = {change::JobOpened{"a", 7},
                                         change::Drained{"a", "being drained"},
                                         change::Drained{"", "drained, too"}};
    REQUIRE(place->write(drained) == StatePlace::Wrote::all);
  }
  CHECK(etcd::bytes_in(other.get("version").at("kvs").at(0), "value") == "2");
  const std::string all = shown(EtcdPlace::read(servers));
  CHECK(contains(all, "job  0 0 - drained, too\njob a 7 0 - being drained\n"));
  // Of a dlaunchd that had no drains.
  other.put("version", "1");
  CHECK(shown(lead(servers, "two")->load()) == all);
  CHECK(etcd::bytes_in(other.get("version").at("kvs").at(0), "value") == "2");
  other.put("version", "3");
  const auto later = lead(servers, "three");
  for (const auto& reads : {std::function<void()>([&] { later->load(); }),
                            std::function<void()>([&] { EtcdPlace::read(servers); })}) {
    CHECK_THROWS_WITH_AS(reads(),
                         doctest::Contains("has version 3, and this dlaunchd knows 2: use the "
                                           "dlaunchd that made it"),
                         Error);
  }
  CHECK(etcd::bytes_in(other.get("version").at("kvs").at(0), "value") == "3");
}

TEST_CASE("a state that is damaged is not served") {
  if (!EtcdCluster::is_there()) return;
  const EtcdCluster cluster(1);
  Other other(cluster.servers());
  lead(cluster.servers(), "one")->load();
  other.put("rows/j/x00000001", "no row");
  const auto place = lead(cluster.servers(), "two");
  try {
    place->load();
    FAIL("it was read");
  } catch (const Error& error) {
    CHECK(error.errc() == Errc::refused);
    CHECK(contains(error.what(), "is damaged (row 'j/x')"));
  }
}
