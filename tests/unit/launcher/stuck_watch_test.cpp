#include "launcher/flight_report.hpp"
#include "launcher/node_sight.hpp"
#include "launcher/stuck_exchange.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

namespace {

CallWait wait(std::uint64_t sequence, int rank, Clock::duration waited, bool is_over) {
  CallWait wait;
  wait.communicator = 7;
  wait.sequence = sequence;
  wait.rank = rank;
  wait.turn = 3;
  wait.group_size = 4;
  wait.call = "all_reduce #" + std::to_string(sequence);
  wait.waited = waited;
  wait.waiting = 1;
  wait.is_over = is_over;
  return wait;
}

}  // namespace

TEST_CASE("the call in which most wait is told, once, until it has gone on") {
  StuckJudge judge;
  const auto other = wait(2, 3, 9s, true);
  const auto merged =
      merge_waits({other, wait(5, 0, 5s, false), wait(5, 1, 6s, true), wait(5, 2, 4s, false)});
  REQUIRE(merged.size() == 2);
  CHECK(merged[1].waiting == 3);
  CHECK(merged[1].waited == Clock::duration(6s));
  const auto told = judge.judge(merged);
  REQUIRE(told);
  CHECK(told->sequence == 5);
  CHECK_FALSE(judge.judge(merged));
  CHECK(judge.is_stuck());
  // It goes on, and the other one is told now.
  CHECK(judge.judge({other})->sequence == 2);
  CHECK_FALSE(judge.judge({}));
  CHECK_FALSE(judge.is_stuck());
  // None that has not waited for long enough.
  CHECK_FALSE(judge.judge({wait(6, 0, 3s, false)}));
}

TEST_CASE("messages are told apart by who waits") {
  auto mine = wait(0, 0, 5s, true), theirs = wait(0, 1, 5s, true);
  CHECK(merge_waits({mine, theirs}).size() == 2);
  auto later = mine;
  later.turn = 4;
  StuckJudge judge;
  CHECK(judge.judge({mine}));
  CHECK(judge.judge({later}));
}

TEST_CASE("nodes' parts of a stuck call make one sentence") {
  StuckCall stuck;
  stuck.wait = wait(5, 0, 5s, true);
  StuckCall first, second;
  first.waiting = {0, 1};
  first.known = 2;
  second.absent = {{2, "stopped"}, {3, "stopped"}};
  second.known = 2;
  CHECK(add_part(stuck, part_text(second)));
  CHECK(add_part(stuck, part_text(first)));
  CHECK(to_string(stuck) ==
        "all_reduce #5 has been waiting for 5.0 s: ranks 0-1 wait; absent: ranks 2-3 (stopped)");
  stuck.known = 3;
  CHECK(to_string(stuck).ends_with("; 1 rank that has not made this communicator"));
  stuck.silent = {"node b (ranks 2-3) does not answer"};
  CHECK(to_string(stuck).ends_with("(stopped); node b (ranks 2-3) does not answer"));
}

TEST_CASE("what cannot be read is no answer") {
  StuckCall stuck;
  for (const char* text : {"", "{", "[1]", "{\"waiting\": 3}", "{\"waiting\": [\"x\"]}"}) {
    CAPTURE(text);
    CHECK_FALSE(add_part(stuck, text));
    CHECK(read_waits(text).empty());
    CHECK_FALSE(read_wait(text));
  }
  CHECK(stuck.waiting.empty());
  CHECK(read_waits(waits_text({wait(5, 0, 5s, true)})).at(0).call == "all_reduce #5");
  CHECK(read_wait(wait_text(wait(5, 2, 5s, true)))->rank == 2);
  // A node with very many calls tells those in which most wait.
  std::vector<CallWait> many;
  for (std::uint64_t i = 1; i <= 100; ++i) many.push_back(wait(i, 0, 5s, true));
  many.back().waiting = 9;
  const auto told = read_waits(waits_text(many));
  CHECK(told.size() == 16);
  CHECK(told.front().sequence == 100);
}

TEST_CASE("nodes' documents are brought together; what is missing is named") {
  const auto node = [](int node_rank, const std::string& id) {
    NodeSight sight;
    sight.job = "demo";
    sight.node = id;
    sight.host = "host-" + id;
    sight.node_rank = node_rank;
    sight.node_count = 3;
    sight.world_size = 3;
    sight.ranks.emplace_back().rank = node_rank;
    return status_json(sight, Clock::time_point(std::chrono::hours(1)));
  };
  const std::string a = node(0, "a"), b = node(1, "b"), c = node(2, "c");
  CHECK(is_complete({c, a, b}));
  CHECK_FALSE(is_complete({a, b}));
  CHECK_FALSE(is_complete({}));
  CHECK_FALSE(has_calls({a, b}));
  // Twice, and what is no document, or not a whole one.
  const auto text =
      status_text({b, a, b, "", "{}", "[]", "{\"ranks\": []}", "{\"ranks\": [{\"rank\": \"x\"}]}"});
  CHECK(text.find("3 ranks, of which 2 cannot be seen: their nodes do not answer") !=
        std::string::npos);
  CHECK(text.find("     0  host-a ") != std::string::npos);
  CHECK(text.find("     1  host-b ") != std::string::npos);
  CHECK(merge_flight({"nothing"}) == "{}\n");
}
