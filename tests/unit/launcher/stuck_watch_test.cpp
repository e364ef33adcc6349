#include "launcher/report/flight_report.hpp"
#include "launcher/watch/core/questions.hpp"
#include "launcher/watch/core/stopped_ranks.hpp"

#include <array>
#include <chrono>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

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

/// As another node reads it: whole, but not cut short anywhere, and not with a byte more.
template <class Kind>
Kind told(const Kind& what) {
  Bytes bytes = encode(Answer(what));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_answer(BytesView(bytes).first(size)));
  }
  const auto answer = decode_answer(bytes);
  bytes.push_back(std::byte{});
  CHECK_FALSE(decode_answer(bytes));
  REQUIRE(answer);
  REQUIRE(std::holds_alternative<Kind>(*answer));
  return std::get<Kind>(*answer);
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

TEST_CASE("how long a call may wait is the launcher's to say, unless its communicator does") {
  struct Row {
    std::chrono::milliseconds launcher, own, waited;
    bool is_over;
    int waiting;
  };
  for (const Row& row :
       {Row{5s, 0s, 4900ms, false, 1}, Row{5s, 0s, 5s, true, 1}, Row{5s, 1s, 1s, true, 1},
        Row{5s, 9s, 5s, false, 1}, Row{5s, 9s, 4s, false, 0}, Row{5s, -1ms, 1h, false, 0},
        Row{0s, 0s, 1h, false, 0}, Row{0s, 1s, 999ms, false, 1}, Row{0s, 1s, 1s, true, 1}}) {
    CAPTURE(row.launcher.count());
    CAPTURE(row.own.count());
    CAPTURE(row.waited.count());
    Flight flight(nullptr, -1, {});
    const auto place = flight.join(77, "world", 0, 2);
    flight.limit_waits(place, row.own);
    Flight::Entry call(flight, place, {.sequence = 1}, "train.cpp", 42);
    const Flight::Waiting seen(&call, {.sequence = 1}, 1);
    std::vector<RankSight> ranks(1);
    ranks[0].ring = &flight.ring();
    ranks[0].log = read_flight(flight.ring());
    WaitTimes times(row.launcher);
    times.look(ranks, Clock::time_point(1h));
    const auto waits = times.look(ranks, Clock::time_point(1h + row.waited));
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].is_over == row.is_over);
    CHECK(waits[0].waiting == row.waiting);
  }
}

TEST_CASE("a rank that made another call of that number is named with it") {
  constexpr std::array<const char*, 2> ops{nullptr, "all_reduce"};
  constexpr std::array<const char*, 2> dtypes{nullptr, "f32"};
  Flight waiting(nullptr, -1, {ops, dtypes, {}}), done(nullptr, -1, {ops, dtypes, {}});
  const auto call = [](std::uint64_t count) {
    return Flight::Call{.what = Flight::Call::pack(1, 1, 0, -1), .sequence = 5, .count = count};
  };
  const auto first = waiting.join(77, "world", 0, 2);
  Flight::Entry under_way(waiting, first, call(8), "train.cpp", 42);
  const Flight::Waiting seen(&under_way, call(8), 1);
  const auto second = done.join(77, "world", 1, 2);
  second.progress->begun.store(5);
  Flight::Entry(done, second, call(9), "train.cpp", 44).done();

  std::vector<RankSight> ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    auto& sight = ranks[static_cast<std::size_t>(rank)];
    sight.rank = rank;
    sight.ring = rank == 0 ? &waiting.ring() : &done.ring();
    sight.log = read_flight(*sight.ring);
  }
  const auto wait = WaitTimes(1s).look(ranks, Clock::now()).at(0);
  // As another node reads it, too.
  const auto asked = decode_question(encode(Question(AskPart{wait})));
  REQUIRE(asked);
  const auto stuck = describe(std::get<AskPart>(*asked).wait, ranks, 2, Clock::now());
  CHECK(stuck.waiting == std::vector<int>{0});
  REQUIRE(stuck.absent.size() == 1);
  CHECK(stuck.absent[0].second.starts_with(
      "made another call, all_reduce #5 (f32, 9 elements) [train.cpp:44]; in no call for "));
  CHECK(find_disagreement(ranks).value_or("").starts_with(
      "the ranks do not agree: rank 0 is in all_reduce #5 (f32, 8 elements) [train.cpp:42], but "
      "rank 1 "
      "made all_reduce #5 (f32, 9 elements) [train.cpp:44]"));
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

TEST_CASE("ranks that wait in messages for each other are told so") {
  const auto message = [](int rank, int whom) {
    CallWait waits = wait(0, rank, 5s, rank == 2);
    waits.whom = whom;
    return waits;
  };
  const std::vector<CallWait> ring{message(2, 4), message(0, 2), message(4, 0), message(7, 2)};
  const auto told = StuckJudge().judge(ring);
  REQUIRE(told);
  CHECK(told->ring == std::vector<int>{2, 4, 0});
  StuckCall stuck;
  stuck.wait = *told;
  CHECK(to_string(stuck).ends_with("; ranks 0,2,4 wait for each other"));
  // A rank that waits for one of a ring, one that waits for nobody in particular, one that
  // computes.
  for (const int whom : {0, -1, 9}) {
    CAPTURE(whom);
    const auto open = StuckJudge().judge({message(2, 4), message(4, whom), message(0, 4)});
    REQUIRE(open);
    CHECK(open->ring.empty());
  }
}

TEST_CASE("nodes' parts of a stuck call make one sentence") {
  StuckCall stuck;
  stuck.wait = wait(5, 0, 5s, true);
  StuckPart first, second;
  first.waiting = {0, 1};
  first.known = 2;
  second.absent = {{2, "stopped"}, {3, "stopped"}};
  second.known = 2;
  stuck.add(told(second));
  stuck.add(told(first));
  CHECK(to_string(stuck) ==
        "all_reduce #5 has been waiting for 5.0 s: ranks 0-1 wait; absent: ranks 2-3 (stopped)");
  stuck.known = 3;
  CHECK(to_string(stuck).ends_with("; 1 rank that has not made this communicator"));
  stuck.silent = {"node b (ranks 2-3) does not answer"};
  CHECK(to_string(stuck).ends_with("(stopped); node b (ranks 2-3) does not answer"));
}

TEST_CASE("a node with very many calls tells those in which most wait") {
  std::vector<CallWait> many;
  for (std::uint64_t i = 1; i <= 100; ++i) many.push_back(wait(i, 0, 5s, true));
  many.back().waiting = 9;
  const auto heard = told(CallWaits{foremost(many)}).waits;
  CHECK(heard.size() == 16);
  CHECK(heard.front().sequence == 100);
  CHECK(heard.front().call == "all_reduce #100");
  CHECK(heard.front().waited == Clock::duration(5s));
}

TEST_CASE("nodes' snapshots are brought together; what is missing is named") {
  const auto node = [](int node_rank, const std::string& id) {
    NodeSnapshot seen;
    seen.job = "demo";
    seen.node = id;
    seen.host = "host-" + id;
    seen.node_rank = node_rank;
    seen.node_count = 3;
    seen.world_size = 3;
    seen.taken = Clock::time_point(1h);
    auto& rank = seen.ranks.emplace_back();
    rank.rank = node_rank;
    add_names(rank, seen.taken);
    return told(seen);
  };
  const auto job_of = [&](const std::vector<NodeSnapshot>& nodes) {
    JobSnapshot job;
    for (const auto& each : nodes) job.add(each);
    const auto again = decode_snapshot(encode(job));
    REQUIRE(again);
    return *again;
  };
  const NodeSnapshot a = node(0, "a"), b = node(1, "b"), c = node(2, "c");
  CHECK(job_of({c, a, b}).is_complete());
  CHECK_FALSE(job_of({a, b}).is_complete());
  CHECK_FALSE(job_of({}).is_complete());
  CHECK_FALSE(job_of({a, b}).has_calls());
  CHECK(status_json(job_of({a})).find("\"behind\":null") != std::string::npos);
  CHECK(status_text(job_of({a})).find(" running        -  no call of libdlaunch so far\n") !=
        std::string::npos);
  const auto text = status_text(job_of({b, a, b}));
  CHECK(text.find("3 ranks, of which 2 cannot be seen: their nodes do not answer") !=
        std::string::npos);
  CHECK(text.find("     0  host-a ") != std::string::npos);
  CHECK(text.find("     1  host-b ") != std::string::npos);
  CHECK(flight_json({}) == "{}\n");
}

TEST_CASE("a flight tells other processes what the ring says, and where the ranks go apart") {
  constexpr std::array<const char*, 2> ops{nullptr, "all_reduce"};
  constexpr std::array<const char*, 2> dtypes{nullptr, "f32"};
  Flight ahead(nullptr, -1, {ops, dtypes, {}}), behind(nullptr, -1, {ops, dtypes, {}});
  NodeSnapshot node;
  node.world_size = 2;
  node.wall = WallClock::time_point(1000h);
  int number = 0;
  for (Flight* flight : {&ahead, &behind}) {
    const auto group = flight->join(77, "world", number, 2);
    for (std::uint64_t i = 1; i <= (flight == &ahead ? 3U : 2U); ++i) {
      group.progress->begun.store(i);
      const Flight::Call call{
          .what = Flight::Call::pack(1, 1, 0, -1), .sequence = i, .count = i == 2 ? 8U : 4U};
      Flight::Entry(*flight, group, call, "train.cpp", 42).done();
    }
    auto& rank = node.ranks.emplace_back();
    rank.rank = number++;
    rank.ring = &flight->ring();
    rank.log = read_flight(*rank.ring);
  }
  node.taken = Clock::now();
  for (auto& rank : node.ranks) add_names(rank, node.taken);
  JobSnapshot job;
  job.add(told(node));
  const auto flight = nlohmann::json::parse(flight_json(job));
  const auto& divergence = flight["divergence"];
  CHECK(divergence["kind"] == "absent");
  CHECK(divergence["sequence"] == 3);
  CHECK(divergence["absent"] == nlohmann::json::array({1}));
  CHECK(divergence["communicator_name"] == "world");
  CHECK(divergence["calls"][0]["call"] == "all_reduce #3 (f32, 4 elements)");
  const auto& calls = flight["ranks"][0]["records"];
  REQUIRE(calls.size() == 3);
  CHECK(calls[1]["count"] == 8);
  CHECK(calls[1]["site"] == "train.cpp:42");
  CHECK_FALSE(calls[1].contains("diverges"));
  CHECK(calls[2]["diverges"] == true);
  CHECK(calls[2]["state"] == "done");
  // It ended before the moment of the snapshot.
  CHECK(calls[2]["ended"].get<double>() <= 3'600'000.0);
  CHECK(flight["time"] == 3'600'000.0);
  // And where they made different calls of one number.
  job.nodes[0].ranks[1].log.calls[1].count = 9;
  CHECK(nlohmann::json::parse(flight_json(job))["divergence"]["kind"] == "mismatch");
  CHECK(nlohmann::json::parse(status_json(job))["ranks"][1]["behind"] == 1);
}

TEST_CASE("ranks that are stopped for long are told once, until they go on") {
  const auto sight = [](int rank, RankSight::State state) {
    RankSight seen;
    seen.rank = rank;
    seen.pid = 100 + rank;
    seen.state = state;
    return seen;
  };
  using State = RankSight::State;
  std::vector<RankSight> ranks{sight(0, State::running), sight(1, State::stopped),
                               sight(2, State::stopped)};
  ranks[2].member = true;  // A rank that waits for it tells it first.
  StoppedRanks stopped(5s);
  const Clock::time_point start(1h);
  CHECK_FALSE(stopped.look(ranks, start));
  CHECK_FALSE(stopped.look(ranks, start + 4900ms));
  CHECK(stopped.look(ranks, start + 5s) ==
        "rank 1 (pid 101) has been stopped by a signal for 5.0 s; to let it go on: kill -CONT 101");
  CHECK_FALSE(stopped.look(ranks, start + 9s));
  CHECK(stopped.look(ranks, start + 10s).value_or("").starts_with("rank 2 (pid 102) has been "));
  CHECK_FALSE(stopped.look(ranks, start + 1h));
  // It goes on, and is stopped again.
  ranks[1].state = State::running;
  CHECK_FALSE(stopped.look(ranks, start + 1h));
  ranks[0].state = ranks[1].state = State::stopped;
  CHECK_FALSE(stopped.look(ranks, start + 2h));
  CHECK(
      stopped.look(ranks, start + 2h + 5s) ==
      "rank 0 (pid 100), rank 1 (pid 101) have been stopped by a signal for 5.0 s; to let them go "
      "on: kill -CONT 100 101");
  stopped.forget();
  // By the user, who knows; by a debugger; never.
  stopped.suspend(true);
  CHECK_FALSE(stopped.look(ranks, start + 3h));
  stopped.suspend(false);
  CHECK_FALSE(stopped.look(ranks, start + 4h));
  stopped.forget();
  for (auto& rank : ranks) rank.traced = true;
  CHECK_FALSE(stopped.look(ranks, start + 5h));
  CHECK_FALSE(stopped.look(ranks, start + 6h));
  CHECK(doing_text(ranks[1], start) == "stopped by a debugger");
  for (auto& rank : ranks) rank.traced = false;
  StoppedRanks never(0s);
  CHECK_FALSE(never.look(ranks, start));
  CHECK_FALSE(never.look(ranks, start + 1h));
}
