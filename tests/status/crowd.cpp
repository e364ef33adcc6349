// Agents without workers, for the pages of a daemon: N nodes of one job that send heartbeats until
// this is killed, and tell of calls that their ranks would be in.
//
//     status_crowd PORT JOB NODES WORKERS_PER_NODE [SILENT [BEHIND]]
//
// The last SILENT of them hang up once all have their places. Without BEHIND the ranks of the
// others go on together, a call a second; with it they soon wait for one rank on each of so many
// nodes.
#include "tests/bench/crowd.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

using namespace dlaunch;
using namespace dlaunch::bench;
using rendezvous::RankCalls;

namespace {

constexpr std::uint64_t world = 7;

/// These ranks are in this all_reduce, or were.
RankCalls calls(std::uint64_t sequence, int ranks, int size, RankCalls::State state,
                Clock::duration age) {
  return {.ranks = ranks,
          .state = state,
          .call = "all_reduce #" + std::to_string(sequence) + " [train.cpp:88]",
          .communicator = world,
          .sequence = sequence,
          .age = age,
          .reached = {{world, size, sequence, age}}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) fail("status_crowd PORT JOB NODES WORKERS_PER_NODE [SILENT [BEHIND]]");
  const Address at = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))).at(0);
  const std::size_t size = std::strtoull(argv[3], nullptr, 10);
  const int workers = std::atoi(argv[4]), world_size = workers * static_cast<int>(size);
  const std::size_t silent = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 0;
  const std::size_t behind = argc > 6 ? std::strtoull(argv[6], nullptr, 10) : 0;
  allow_agents(size);
  Crowd crowd(at, size, workers, argv[2]);
  crowd.until(Agent::State::meeting, size);
  for (std::size_t i = size - std::min(silent, size); i < size; ++i) crowd.agents()[i].hang_up();
  const auto begin = Clock::now();
  constexpr std::uint64_t first = 1041;
  const auto tell = [&](std::size_t i) {
    const auto passed = Clock::now() - begin;
    const auto calls_made = static_cast<std::uint64_t>(passed / std::chrono::seconds(1));
    auto& agent = crowd.agents()[i];
    if (behind == 0) {
      return agent.tell_calls({calls(first + calls_made, workers, world_size,
                                     RankCalls::State::in_call, passed % std::chrono::seconds(1))});
    }
    // Spread over the job, and some of them in pieces of a node.
    const std::size_t step = std::max<std::size_t>(1, size / behind);
    if (i % step != step / 2 || i / step >= behind) {
      return agent.tell_calls(
          {calls(first + 2, workers, world_size, RankCalls::State::waits, passed)});
    }
    const int late = 1 + static_cast<int>(i / step) % workers;
    std::vector<RankCalls> told{calls(first, late, world_size, RankCalls::State::between,
                                      passed + std::chrono::seconds(2))};
    if (late < workers) {
      told.push_back(calls(first + 2, workers - late, world_size, RankCalls::State::waits, passed));
    }
    agent.tell_calls(std::move(told));
  };
  // At most a fifth at a time, so that their ages differ.
  for (std::size_t turn = 0;; ++turn) {
    for (std::size_t i = turn % 5; i < size - std::min(silent, size); i += 5) {
      crowd.agents()[i].beat();
      if (behind == 0 || turn < 10) tell(i);
    }
    crowd.read_what_comes();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}
