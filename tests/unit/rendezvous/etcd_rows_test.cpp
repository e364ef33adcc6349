// State as etcd has it: what is asked for, rows of keys and values, and the transactions that a
// batch of changes comes to.
#include "rendezvous/state/etcd/gateway.hpp"
#include "rendezvous/state/etcd/rows.hpp"
#include "rendezvous/state/etcd/servers.hpp"
#include "tests/support/state_text.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::rendezvous::etcd;
using dlaunch::testing::shown;

namespace {

using Kept = std::map<std::string, std::string>;

std::string read(const std::string& urls) {
  const auto read = read_servers(urls);
  if (const auto* wrong = std::get_if<Complaint>(&read)) return wrong->sentence;
  return to_string(std::get<Servers>(read));
}

Bytes bytes_of(std::string_view text) {
  const BytesView raw = as_bytes(text);
  return {raw.begin(), raw.end()};
}

/// As etcd would; a key twice in a transaction is an error there.
void carry_out(const std::vector<Operation>& operations, Kept& kept) {
  REQUIRE(operations.size() <= operations_max);
  std::set<std::string> seen;
  std::vector<std::string> erased;
  std::size_t bytes = 0;
  for (const auto& each : operations) {
    bytes += each.key.size() + each.value.size();
    if (each.kind == Operation::Kind::erase_all) {
      std::erase_if(kept, [&](const auto& one) { return one.first.starts_with(each.key); });
      erased.push_back(each.key);
      continue;
    }
    CHECK(seen.insert(each.key).second);
    for (const auto& prefix : erased) CHECK_FALSE(each.key.starts_with(prefix));
    if (each.kind == Operation::Kind::put) {
      kept[each.key] = each.value;
    } else {
      kept.erase(each.key);
    }
  }
  CHECK(bytes <= operation_bytes_max);
}

/// Rows over what would be in etcd.
struct Place {
  Place() {
    Batch batch;
    rows->begin(7, batch);
    commit(batch);
  }
  void write(const std::vector<Change>& changes) {
    Batch batch;
    for (const auto& each : changes) rows->apply(each, batch);
    commit(batch);
  }
  void commit(const Batch& batch) {
    const auto transactions = batch.transactions();
    CHECK(from_bytes(to_bytes(transactions)) == transactions);
    for (const auto& each : transactions) carry_out(each, kept);
    count += transactions.size();
  }
  /// What another one finds, which goes on from there.
  std::string reopened() {
    rows = std::make_unique<Rows>("a test");
    for (const auto& [key, value] : kept) rows->found(key, value);
    return shown(rows->contents());
  }
  std::unique_ptr<Rows> rows = std::make_unique<Rows>("a test");
  Kept kept;
  std::size_t count = 0;
};

}  // namespace

TEST_CASE("the URLs of etcd are read, or it is said what is wrong") {
  CHECK(read("http://127.0.0.1:2379") == "etcd at 127.0.0.1:2379 (default)");
  CHECK(read("http://a:1,http://[::1]:2/prod") == "etcd at a:1, [::1]:2 (prod)");
  CHECK(read("http://a:1/prod,http://b:2/prod/") ==
        "'http://b:2/prod/': the name behind the port has letters, digits and '-', '_', '.', 64 of "
        "them at most");
  CHECK(read("http://a:1/x,http://b:2/y") ==
        "'http://b:2/y': all URLs have the same name, or none");
  CHECK(read("https://a:1") ==
        "'https://a:1': https is not spoken to etcd; let etcd, or 'etcd grpc-proxy' beside "
        "dlaunchd, listen on loopback with http");
  CHECK(read("http://me:secret@a:1") ==
        "'http://me:secret@a:1': users and passwords of etcd are not supported");
  CHECK(read("a:1") == "'a:1' is not http://HOST:PORT, as in etcd:http://127.0.0.1:2379");
  CHECK(read("http://a") == "'http://a' is not http://HOST:PORT, as in etcd:http://127.0.0.1:2379");
}

TEST_CASE("bytes go through JSON and back") {
  std::string text;
  for (int size = 0; size < 70; ++size) {
    CHECK(from_base64(to_base64(text)) == text);
    text += static_cast<char>(size * 37);
  }
  CHECK(to_base64("Ma") == "TWE=");
  CHECK_THROWS_AS(from_base64("TWE"), Failure);
  CHECK_THROWS_AS(from_base64("T!E="), Failure);
}

TEST_CASE("what was written is found again, in whichever order keys are") {
  Place place;
  place.write({change::JobOpened{"a", 7}, change::SpaceOpened{1, "a", 7, 3},
               change::EpochClosed{"a", 3}, change::JobOpened{"b", 8}});
  place.write(
      {change::Stored{1, "k", bytes_of("v"), 9, std::chrono::milliseconds(500)},
       change::Stored{1, std::string("k\0000000", 6), Bytes(600'000, std::byte{'l'}), 0, {}},
       change::Stored{1, "k0000", bytes_of("w"), 0, {}}, change::Pushed{1, "q", bytes_of("1")},
       change::Pushed{1, "q", bytes_of("2")}, change::Pushed{1, "q/0", bytes_of("x")},
       change::Answered{1, 9, 0, 4, {}, bytes_of("y")}});
  place.write({change::Popped{1, "q"}, change::Pushed{1, "q", bytes_of("3")},
               change::Completed{1, true, "g", 2, std::make_shared<const Bytes>(5), ""},
               change::JobFinished{"b", -4}, change::Drained{"a", "by ada"},
               change::Drained{"", "by bob"}});
  CHECK(place.reopened().find("job  0 0 - by bob\njob a 7 3 - by ada\njob b 8 0 -4\n") !=
        std::string::npos);
  place.write({change::Drained{"a", std::nullopt}, change::Drained{"", std::nullopt}});
  const std::string before = place.reopened();
  CHECK(before.find("job a 7 3 -\njob b 8 0 -4\nspace a 7 3 1\n") != std::string::npos);
  CHECK(before.find("entry q/0 x\nentry q 2\nentry q 3\n") != std::string::npos);
  CHECK(place.reopened() == before);
  place.write({change::JobForgotten{"b"}, change::SpaceDropped{1}});
  CHECK(place.reopened() == "memory 7\njob  8 0 -\njob a 7 3 -\n");
  CHECK(place.kept.size() == 2);
}

TEST_CASE("a key that is written often in a batch is written once") {
  Place place;
  place.write({change::SpaceOpened{1, "a", 1, 1}});
  place.count = 0;
  std::vector<Change> changes;
  for (int i = 0; i < 1000; ++i) {
    changes.emplace_back(change::Stored{1, "k", bytes_of(std::to_string(i)), 0, {}});
  }
  place.write(changes);
  CHECK(place.count == 1);
  CHECK(place.reopened().find("key k=999 0 0\n") != std::string::npos);
  // What comes after all like it were erased cannot be in the same transaction.
  place.count = 0;
  place.write({change::Answered{1, 5, 0, 1, {}, bytes_of("old")}, change::Forgot{1, 5},
               change::Answered{1, 5, 0, 1, {}, bytes_of("new")}});
  CHECK(place.count == 2);
  CHECK(place.reopened().find("answer 5 1 new\n") != std::string::npos);
}

TEST_CASE("a row that is damaged, or a piece of it gone, is found") {
  Place place;
  place.write({change::SpaceOpened{1, "a", 1, 1},
               change::Stored{1, "k", Bytes(600'000, std::byte{'l'}), 0, {}}});
  const Kept whole = place.kept;
  for (const auto& [key, value] : whole) {
    CAPTURE(key);
    place.kept = whole;
    place.kept[key][value.size() / 2] ^= 1;
    CHECK_THROWS_AS(place.reopened(), Error);
    place.kept = whole;
    place.kept.erase(key);
    if (key.front() == 's') CHECK_THROWS_AS(place.reopened(), Error);
  }
}
