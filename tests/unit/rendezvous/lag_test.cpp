// Which ranks are behind, from what nodes have told at different times.
#include "rendezvous/lag/lag.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;
using State = RankCalls::State;

namespace {

const auto now = Clock::time_point(1000s);
constexpr std::uint64_t world = 7, pair = 9;

/// Ranks that are in, or were in, this collective of the world for so long.
RankCalls at(std::uint64_t sequence, Clock::duration age, State state = State::waits, int ranks = 1,
             int size = 8) {
  return {.ranks = ranks,
          .state = state,
          .call = "all_reduce #" + std::to_string(sequence),
          .communicator = world,
          .sequence = sequence,
          .age = age,
          .reached = {{world, size, sequence, age}}};
}

NodeCalls node(int node_rank, std::vector<RankCalls> calls, Clock::duration told_ago = 100ms,
               Clock::duration heard_ago = 0ms) {
  return {node_rank, 4 * node_rank, now - told_ago, now - heard_ago,
          std::make_shared<const std::vector<RankCalls>>(std::move(calls))};
}

std::string sentence_of(const JobLag& lag, std::size_t which = 0) {
  const auto behind = lag.behind();
  return which < behind.size() ? lag.sentence(*behind[which], which == 0 ? "b" : "c") : "none";
}

}  // namespace

TEST_CASE("a rank that stays away from a call is behind since the others began it") {
  const auto lag = judge_lag(
      std::vector{node(0, {at(1043, 12s, State::waits, 4)}),
                  node(1, {at(1043, 11s, State::waits, 3), at(1041, 14s, State::between)})},
      8);
  REQUIRE(lag.ranks.size() == 3);
  CHECK(lag.ranks[2].first_rank == 7);
  CHECK(lag.ranks[2].lag.calls == 2);
  CHECK(lag.ranks[2].lag.time == Clock::duration(12s));
  CHECK(lag.ranks_behind == 1);
  CHECK(sentence_of(lag) ==
        "rank 7 on node b is 2 calls behind, for 12 s: in no call for 14 s, after all_reduce "
        "#1041; 7 ranks have come to all_reduce #1043");
  CHECK_FALSE(lag.ranks[0].lag.is_behind());
  CHECK(lag.ranks[0].lag.time == 0s);
  CHECK(lag.foremost.front().call == "all_reduce #1043");
}

TEST_CASE("ranks whose nodes tell at different times are not behind because they told earlier") {
  // A thousand calls a second; the second node told a second before the first.
  const auto lag = judge_lag(std::vector{node(0, {at(9000, 1ms, State::in_call, 4)}, 0ms),
                                         node(1, {at(8000, 1ms, State::in_call, 4)}, 1s)},
                             8);
  CHECK(lag.ranks[1].lag.calls == 0);
  CHECK(lag.ranks[1].lag.time == 0s);
  CHECK(lag.ranks_behind == 0);
}

TEST_CASE("what was told holds for as long as the node is heard, and not longer") {
  const auto first = node(0, {at(5, 60s)}, 59s);
  const auto seen = [&](Clock::duration heard_ago) {
    return judge_lag(std::vector{first, node(1, {at(4, 61s)}, 58s, heard_ago)}, 8)
        .ranks[1]
        .lag.time;
  };
  // Less than it is: something else may be about to be told.
  const auto margin = calls_told_every(2) + 1s;
  CHECK(seen(0s) == 60s + 59s - margin);
  CHECK(seen(10s) == 60s + 59s - margin - 10s);
  CHECK(seen(58s) == 60s + 59s - 58s);
}

TEST_CASE("a rank that has begun nothing is behind in what the whole world has begun") {
  RankCalls none{.state = State::none};
  const auto lag = judge_lag(std::vector{node(0, {at(1, 5s, State::waits, 3), none})}, 4);
  CHECK(lag.ranks_behind == 0);  // That communicator is not of the whole world.
  auto whole = judge_lag(std::vector{node(0, {at(1, 5s, State::waits, 3, 4), none})}, 4);
  CHECK(whole.ranks_behind == 1);
  CHECK(sentence_of(whole) ==
        "rank 3 on node b is 1 call behind, for 5.0 s: in no call yet; 3 ranks have come to "
        "all_reduce #1");
  // One that has told of as many communicators as it may can be in others.
  RankCalls many{.reached = {{1, 4, 1, 0s}, {2, 4, 1, 0s}, {3, 4, 1, 0s}, {4, 4, 1, 0s}}};
  CHECK(judge_lag(std::vector{node(0, {at(1, 5s, State::waits, 3, 4), many})}, 4).ranks_behind ==
        0);
}

TEST_CASE("each communicator is judged by itself") {
  RankCalls both = at(10, 20s);
  both.reached.push_back({pair, 2, 3, 30s});
  RankCalls late = at(10, 20s);
  late.reached.push_back({pair, 2, 2, 40s});
  const auto lag = judge_lag(std::vector{node(0, {both, late, at(10, 20s, State::waits, 2)})}, 4);
  REQUIRE(lag.ranks_behind == 1);
  CHECK(lag.ranks[1].lag.communicator == pair);
  CHECK(sentence_of(lag) ==
        "rank 1 on node b is 1 call behind, for 30 s: in all_reduce #10 for 20 s; 1 rank has come "
        "to call #3");
}

TEST_CASE("the longest behind come first, and what they do is said") {
  const auto lag =
      judge_lag(std::vector{node(0, {at(9, 9s, State::waits, 4)}),
                            node(1, {at(8, 60s, State::stopped, 2), at(3, 70s, State::ended),
                                     at(8, 60s, State::in_call)}),
                            node(2, {at(8, 5s, State::in_call, 4)}, 50s, 48s)},
                12);
  CHECK(lag.ranks_behind == 4);
  CHECK(sentence_of(lag) ==
        "rank 6 on node b is 6 calls behind, for 60 s: ended, after all_reduce #3; 4 ranks have "
        "come to all_reduce #9");
  CHECK(sentence_of(lag, 1) ==
        "ranks 4-5 on node c are 1 call behind, for 9.0 s: stopped by a signal, last seen in "
        "all_reduce #8; 4 ranks have come to all_reduce #9");
  // The node that is silent is not known to have stayed where it was.
  CHECK(lag.ranks.back().lag.time == 0s);
}

TEST_CASE("nonsense that a node may tell is judged without harm") {
  RankCalls wild{.ranks = 1 << 29, .age = std::chrono::hours(24 * 365 * 100)};
  wild.reached = {{0, -5, ~std::uint64_t{0}, std::chrono::hours(24 * 365 * 100)}, {0, 1, 0, 0s}};
  const auto lag = judge_lag(std::vector{node(0, {wild, wild}), node(1, {at(1, 1s)})}, 4);
  CHECK(lag.ranks.size() == 3);
  CHECK(judge_lag({}, 0).ranks.empty());
}

TEST_CASE("the more nodes, the less often each tells") {
  CHECK(calls_told_every(1) == 2s);
  CHECK(calls_told_every(4000) == 2s);
  CHECK(calls_told_every(10'000) == 5s);
}
