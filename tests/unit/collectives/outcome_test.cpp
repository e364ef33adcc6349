// What living ranks come to when they agree: the decision, its bytes and its sentences.
#include "collectives/call/core/outcome.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using transport::Op;

namespace {

std::optional<Outcome> conclude(const std::vector<Attendance>& ranks, bool late = false) {
  return dlaunch::conclude(ranks, late, 0, 5s);
}

bool comes_to(const std::vector<Attendance>& ranks, const Outcome& outcome, bool late = false) {
  return conclude(ranks, late) == outcome;
}

Attendance brings(std::uint32_t flags, Op op = Op::agree) {
  return {.brought = Brought{op, flags, "train.cpp:42"}};
}

const Attendance lost{.is_lost = true}, awaited{};

std::vector<int> ranks_to(int end) {
  std::vector<int> ranks;
  for (int rank = 0; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

const Group group{"pair", 7, 2, {5, 6, 2, 3}};

std::optional<CallError> failure_of(const Outcome& outcome, CallSite site = {}) {
  return dlaunch::failure_of({group, Op::agree, 2, site}, outcome);
}

}  // namespace

TEST_CASE("the bitwise and of those who live, as soon as all of them have come") {
  CHECK(comes_to({brings(6), brings(3)}, Agreement{2, {0, 1}}));
  CHECK(comes_to({lost, brings(6), lost, brings(5)}, Agreement{4, {1, 3}}));
  CHECK_FALSE(conclude({brings(6), awaited}));
  // Lost after it came: it takes no part.
  Attendance gone = brings(1);
  gone.is_lost = true;
  CHECK(comes_to({brings(6), gone}, Agreement{6, {0}}));
}

TEST_CASE("ranks that are late are named, the first sixteen of them") {
  CHECK(comes_to({brings(1), awaited, lost, awaited}, RanksAbsent{0, 5s, {1, 3}, 2}, true));
  std::vector<Attendance> many(40);
  many[0] = brings(1);
  const auto outcome = conclude(many, true);
  REQUIRE(outcome);
  const auto& absent = std::get<RanksAbsent>(*outcome);
  CHECK(absent.named.size() == RanksAbsent::named_max);
  CHECK(absent.count == 39);
}

TEST_CASE("different calls are told apart before all have come") {
  CHECK(comes_to({brings(1), awaited, brings(1, Op::shrink)},
                 OpsDiffer{{0, Op::agree, "train.cpp:42"}, {2, Op::shrink, "train.cpp:42"}}));
}

TEST_CASE("what lies in the store is read as it was written, and nothing else is") {
  const Brought brought{Op::shrink, 0xffff'fffe, "train.cpp:42"};
  CHECK(decode_brought(encode(brought)) == brought);
  const std::vector<Outcome> outcomes = {Agreement{7, {0, 2, 3}},
                                         OpsDiffer{{1, Op::agree, "a.cpp:1"}, {0, Op::shrink, ""}},
                                         RanksAbsent{3, 1500ms, {0, 2}, 2}};
  for (const Outcome& outcome : outcomes) {
    const Bytes whole = encode(outcome);
    CHECK(decode_outcome(whole, 4) == outcome);
    CHECK_FALSE(decode_outcome(whole, 1));  // Ranks that are not of the communicator.
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CHECK_FALSE(decode_outcome(BytesView(whole).first(size), 4));
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    CHECK_FALSE(decode_outcome(longer, 4));
  }
  CHECK_FALSE(decode_outcome(encode(Agreement{7, {2, 1}}), 4));
  CHECK_FALSE(decode_outcome(encode(RanksAbsent{0, 1s, ranks_to(17), 17}), 40));
  CHECK_FALSE(decode_outcome(encode(RanksAbsent{0, 1s, {1, 2}, 1}), 4));
  // A place that is too long is cut, so that what was written can be read.
  CHECK(decode_brought(encode(Brought{Op::agree, 1, std::string(5000, 'x')}))->place.size() < 5000);
}

TEST_CASE("every rank makes its own sentence of the one outcome") {
  CHECK_FALSE(failure_of(Agreement{1, {0, 2}}));
  const auto check = [](const std::optional<CallError>& failure, Errc code, Fault fault,
                        const std::vector<int>& ranks, const std::string& sentence) {
    REQUIRE(failure);
    CHECK(failure->errc() == code);
    CHECK(failure->claim() == Claim{.fault = fault, .ranks = ranks});
    CHECK(std::string(failure->what()) == sentence);
  };
  check(failure_of(Agreement{1, {0, 3}}), Errc::peer_lost, Fault::own, {},
        "agree #2 of 'pair': the others took rank 2, this one, for lost, and go on without it");
  check(failure_of(OpsDiffer{{0, Op::agree, "a.cpp:1"}, {3, Op::shrink, ""}}), Errc::mismatch,
        Fault::disagreed, {5, 3},
        "agree #2 of 'pair': rank 0 is in agree #2 [a.cpp:1], but rank 3 is in shrink #2");
  check(failure_of(RanksAbsent{0, 1500ms, {3}, 1}, {"/src/b.cpp", 9, ""}), Errc::timeout,
        Fault::absent, {3},
        "agree #2 of 'pair': rank 0 waited 1.5 s; absent, and not known to be lost: rank 3 "
        "[b.cpp:9]");
  check(failure_of(RanksAbsent{1, 5s, {0, 3}, 7}), Errc::timeout, Fault::absent, {5, 3},
        "agree #2 of 'pair': rank 1 waited 5 s; absent, and not known to be lost: ranks 0, 3 and "
        "5 more");
}
