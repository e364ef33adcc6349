// Whether a job goes on, by what is seen of its ranks and by what they declare.
#include "launcher/watch/core/progress.hpp"

#include "launcher/watch/core/questions.hpp"

#include <chrono>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

namespace {

constexpr Clock::time_point start{};

WorkSigns calls(int rank, std::uint64_t number) { return {.rank = rank, .calls = number}; }
WorkSigns outside(std::uint64_t bytes, std::chrono::milliseconds cpu_time) {
  return {.output_bytes = bytes, .cpu_time = cpu_time};
}

NodeProgress node(Clock::duration unseen, std::optional<Clock::duration> undeclared = {}) {
  return {.unseen = unseen, .undeclared = undeclared, .doing = {{0, "in no call yet"}}};
}

}  // namespace

TEST_CASE("a rank that makes calls goes on by them, and by nothing else") {
  ProgressClock clock(start);
  clock.look({calls(0, 4), calls(1, 4)}, start + 1s);
  CHECK(clock.at(start + 2s).unseen == 2s);
  clock.look({calls(0, 4), calls(1, 5)}, start + 2s);
  CHECK(clock.at(start + 2s).unseen == 0s);
  // It waits for the others, and no processor is idle for that.
  auto spins = calls(1, 5);
  spins.cpu_time = 1s, spins.output_bytes = 100;
  clock.look({calls(0, 4), spins}, start + 3s);
  CHECK(clock.at(start + 3s).unseen == 1s);
  // Its end is progress, too.
  spins.ended = true;
  clock.look({calls(0, 4), spins}, start + 4s);
  CHECK(clock.at(start + 4s).unseen == 0s);
}

TEST_CASE("a rank without calls goes on by what it writes and computes") {
  ProgressClock clock(start);
  clock.look({outside(10, 500ms)}, start + 1s);
  clock.look({outside(11, 500ms)}, start + 2s);
  CHECK(clock.at(start + 2s).unseen == 0s);
  clock.look({outside(11, 550ms)}, start + 3s);
  CHECK(clock.at(start + 3s).unseen == 0s);
  // A thread that looks around ten times a second.
  clock.look({outside(11, 570ms)}, start + 4s);
  clock.look({outside(11, 590ms)}, start + 5s);
  CHECK(clock.at(start + 5s).unseen == 2s);
  // A child has ended, and was not waited for.
  clock.look({outside(11, 100ms)}, start + 6s);
  CHECK(clock.at(start + 6s).unseen == 3s);
  clock.look({outside(11, 200ms)}, start + 7s);
  CHECK(clock.at(start + 7s).unseen == 0s);
}

TEST_CASE("what is declared has a time of its own") {
  ProgressClock clock(start);
  CHECK_FALSE(clock.at(start + 1s).undeclared);
  clock.declare(start + 1s);
  clock.look({calls(0, 4)}, start + 2s);
  clock.look({calls(0, 5)}, start + 3s);
  CHECK(clock.at(start + 4s).unseen == 1s);
  CHECK(clock.at(start + 4s).undeclared == Clock::duration(3s));
}

TEST_CASE("the time in which the user has stopped the job, or this process stood, does not count") {
  ProgressClock clock(start);
  clock.look({calls(0, 4)}, start + 1s);
  clock.declare(start + 1s);
  // The question may come before the look.
  CHECK(clock.at(start + 61s).unseen == 1s);
  CHECK(clock.at(start + 61s).undeclared == Clock::duration(0s));
  clock.look({calls(0, 4)}, start + 61s);
  CHECK(clock.at(start + 61s).unseen == 1s);
  CHECK(clock.at(start + 61s).undeclared == Clock::duration(0s));
  clock.suspend(true);
  CHECK(clock.at(start + 62s).unseen == 1s);
  clock.look({calls(0, 4)}, start + 62s);
  clock.look({calls(0, 4)}, start + 63s);
  clock.suspend(false);
  clock.look({calls(0, 4)}, start + 64s);
  CHECK(clock.at(start + 64s).unseen == 2s);
}

TEST_CASE("a job has stalled when none of its nodes has gone on") {
  CHECK(judge_progress({{0, node(10s)}}, 1, 10s).stalled);
  CHECK(judge_progress({{0, node(4s)}}, 1, 10s).look_again_after == 6s);
  CHECK(judge_progress({{0, node(11s)}, {1, node(12s)}}, 2, 10s).stalled);
  const auto one_goes_on = judge_progress({{0, node(60s)}, {1, node(3s)}}, 2, 10s);
  CHECK_FALSE(one_goes_on.stalled);
  CHECK(one_goes_on.look_again_after == 7s);
}

TEST_CASE("a node that is silent may go on, and so does a job of which no rank runs") {
  const auto silent = judge_progress({{0, node(60s)}}, 2, 10s);
  CHECK_FALSE(silent.stalled);
  CHECK(silent.look_again_after == 1s);
  CHECK_FALSE(judge_progress({}, 2, 10s).stalled);
  NodeProgress over = node(60s);
  over.doing.clear();
  CHECK_FALSE(judge_progress({{0, over}}, 1, 10s).stalled);
  CHECK(judge_progress({{0, over}, {1, node(60s)}}, 2, 10s).stalled);
}

TEST_CASE("where any node has declared progress only that counts") {
  CHECK(judge_progress({{0, node(0s)}, {1, node(0s, 10s)}}, 2, 10s).stalled);
  CHECK_FALSE(judge_progress({{0, node(60s)}, {1, node(60s, 9s)}}, 2, 10s).stalled);
  CHECK_FALSE(judge_progress({{0, node(60s, 1s)}, {1, node(60s, 60s)}}, 2, 10s).stalled);
}

TEST_CASE("ranks that do the same are named together") {
  JobProgress job{{0, node(60s)}, {1, node(61s)}};
  job[0].doing = {{0, "in all_reduce #3 [a.cpp:5] for 60 s"}, {1, "in no call for 61 s"}};
  job[1].doing = {{2, "in all_reduce #3 [a.cpp:5] for 60 s"}};
  CHECK(stall_sentence(job, 60s) ==
        "no rank has made progress for 60 s: ranks 0,2 (in all_reduce #3 [a.cpp:5] for 60 s) and "
        "rank 1 (in no call for 61 s)");
}

TEST_CASE("what nodes tell each other of their progress") {
  NodeProgress told = node(1500ms, 2s);
  const Bytes bytes = encode(Answer(told));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_answer(BytesView(bytes).first(size)));
  }
  const auto answer = decode_answer(bytes);
  REQUIRE(answer);
  const auto& read = std::get<NodeProgress>(*answer);
  CHECK(read.unseen == told.unseen);
  CHECK(read.undeclared == told.undeclared);
  CHECK(read.doing == told.doing);
  told.doing.resize(NodeProgress::doing_max + 1);
  CHECK_FALSE(decode_answer(encode(Answer(told))));

  CHECK(std::holds_alternative<AskProgress>(*decode_question(encode(Question(AskProgress{})))));
  const auto end = decode_question(encode(Question(AskEnd{"no rank has made progress"})));
  REQUIRE(end);
  CHECK(std::get<AskEnd>(*end).sentence == "no rank has made progress");
  const auto time = decode_question(encode(Question(AskTime{90s})));
  REQUIRE(time);
  CHECK(std::get<AskTime>(*time).time == 90s);
  CHECK(std::holds_alternative<Waiting>(*decode_answer(encode(Answer(Waiting{})))));
  CHECK(std::holds_alternative<Ending>(*decode_answer(encode(Answer(Ending{})))));
}
