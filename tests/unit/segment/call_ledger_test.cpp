#include "runtime/segment/call_ledger.hpp"

#include <string>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

CommunicatorCalls calls(int rank, std::uint64_t count, std::uint64_t digest,
                        std::vector<CommunicatorCalls::Call> last = {}) {
  CommunicatorCalls made;
  made.communicator = 1;
  made.name = "world";
  made.rank = rank;
  made.begun = count;
  made.count = count;
  made.digest = digest;
  made.last = std::move(last);
  return made;
}

const CommunicatorCalls::Call root_0{3, 30, "broadcast #3 (root 0) [a.cpp:1]"};
const CommunicatorCalls::Call root_1{3, 31, "broadcast #3 (root 1) [a.cpp:2]"};

}  // namespace

TEST_CASE("ranks that made the same calls, or some of them, agree") {
  CallLedger ledger;
  CHECK_FALSE(ledger.disagreement());
  ledger.add(calls(0, 3, 7, {{2, 20, "gather #2"}, root_0}));
  ledger.add(calls(1, 3, 7, {root_0}));
  ledger.add(calls(1, 3, 7, {root_0}));
  ledger.add(calls(2, 2, 5, {{2, 20, "gather #2"}}));
  ledger.add(calls(3, 4, 9, {{4, 40, "gather #4"}}));
  CHECK_FALSE(ledger.disagreement());
  CHECK_FALSE(ledger.odd_rank());
  REQUIRE(ledger.kept().size() == 1);
  CHECK(ledger.kept()[0].rank == 0);
}

TEST_CASE("the first call of one number that is not the same is told, once for all") {
  CallLedger ledger;
  ledger.add(calls(0, 4, 7, {{2, 20, "gather #2"}, root_0, {4, 40, "gather #4"}}));
  ledger.add(calls(1, 4, 8, {root_1, {4, 41, "scatter #4"}}));
  CHECK(ledger.disagreement() ==
        "the ranks do not agree: rank 0 made broadcast #3 (root 0) [a.cpp:1], but rank 1 made "
        "broadcast #3 (root 1) [a.cpp:2]");
  CHECK(ledger.odd_rank() == 0);
}

TEST_CASE("calls of which no record is left are told by their numbers") {
  CallLedger ledger;
  ledger.add(calls(0, 9, 7, {root_0}));
  ledger.add(calls(5, 9, 8, {root_0}));
  CHECK(ledger.disagreement() ==
        "the ranks do not agree: rank 0 and rank 5 made different calls with a root before #3, of "
        "which no record is left");
  CallLedger none;
  auto one = calls(0, 9, 7), other = calls(1, 9, 8);
  one.name = other.name = "world/split1.0";
  none.add(one);
  none.add(other);
  CHECK(none.disagreement() ==
        "the ranks do not agree: rank 0 and rank 1 made different calls with a root before #10 of "
        "'world/split1.0', of which no record is left");
  // In a rank that had many communicators the names of some are gone.
  CallLedger many;
  other.name = "";
  many.add(one);
  many.add(other);
  CHECK(many.disagreement() == none.disagreement());
  CallLedger nameless;
  one.name = "";
  nameless.add(one);
  nameless.add(other);
  CHECK(nameless.disagreement() ==
        "the ranks do not agree: rank 0 and rank 1 made different calls with a root before #10 of "
        "one of many communicators, of which no record is left");
}

TEST_CASE("what the program has heard of, on any rank and at any time, is not told") {
  for (const int heard : {0, 1, 2}) {
    CallLedger ledger;
    for (int rank = 0; rank < 3; ++rank) {
      auto made = calls(rank, 3, rank == 1 ? 8 : 7, {rank == 1 ? root_1 : root_0});
      made.heard = rank == heard;
      ledger.add(made);
    }
    CHECK_FALSE(ledger.disagreement());
  }
}

TEST_CASE("the rank that differs from most is named first, however it is told") {
  const std::string sentence =
      "the ranks do not agree: rank 2 made broadcast #3 (root 1) [a.cpp:2], but rank 0 and 2 "
      "others made broadcast #3 (root 0) [a.cpp:1]";
  CallLedger one;
  for (const int rank : {3, 1, 2, 0, 2, 3}) {
    one.add(calls(rank, 3, rank == 2 ? 8 : 7, {rank == 2 ? root_1 : root_0}));
  }
  CHECK(one.disagreement() == sentence);
  CHECK(one.odd_rank() == 2);
  // Each of two nodes tells what its ranks made, and may tell it again.
  CallLedger first, second, job;
  first.add(calls(0, 3, 7, {root_0}));
  first.add(calls(1, 3, 7, {root_0}));
  second.add(calls(2, 3, 8, {root_1}));
  second.add(calls(3, 3, 7, {root_0}));
  REQUIRE(second.kept().size() == 2);
  for (int time = 0; time < 2; ++time) {
    for (const auto& kept : first.kept()) job.add(kept);
    for (const auto& kept : second.kept()) job.add(kept);
    CHECK(job.disagreement() == sentence);
  }
}

TEST_CASE("without a majority the first two that differ are told") {
  CallLedger halves;
  for (const int rank : {0, 1, 2, 3}) {
    halves.add(calls(rank, 3, rank < 2 ? 8 : 7, {rank < 2 ? root_1 : root_0}));
  }
  CHECK(halves.disagreement() ==
        "the ranks do not agree: rank 0 made broadcast #3 (root 1) [a.cpp:2], but rank 2 made "
        "broadcast #3 (root 0) [a.cpp:1]");
  // Only some of so many ways to differ are kept, and what most ranks made is not known.
  CallLedger many;
  for (int rank = 0; rank < 100; ++rank) {
    const auto digest = rank < 20 ? static_cast<std::uint64_t>(rank) : 1;
    many.add(calls(rank, 3, digest, {{3, digest, "broadcast #3 " + std::to_string(digest)}}));
  }
  CHECK(many.kept().size() == CallLedger::histories_max);
  CHECK(many.disagreement() ==
        "the ranks do not agree: rank 0 made broadcast #3 0, but rank 1 made broadcast #3 1");
}

TEST_CASE("other communicators are apart, and of too many nothing is kept") {
  CallLedger ledger;
  for (std::uint64_t id = 0; id <= CallLedger::communicators_max; ++id) {
    auto made = calls(0, 1, id);
    made.communicator = id;
    ledger.add(made);
  }
  CHECK(ledger.kept().size() == CallLedger::communicators_max);
  CHECK_FALSE(ledger.disagreement());
}
