#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// An agent's report to a dlaunchd about its ranks' calls while the job runs (docs/decisions/0056).
namespace dlaunch::rendezvous {

/// Consecutive ranks of one node that do the same, as their agent saw them. Times are ages at that
/// moment, since hosts' clocks differ.
struct RankCalls {
  enum class State : std::uint8_t {
    none,     ///< It has made no call yet, as far as can be seen.
    between,  ///< In no call, after one.
    in_call,
    waits,    ///< In a call, and it has waited there for `waits_from`.
    stopped,  ///< By a signal.
    ended,
  };
  static constexpr State state_last = State::ended;
  /// How far a rank has come in one of its communicators.
  struct Reached {
    std::uint64_t communicator = 0;  ///< A hash of its id.
    std::int32_t size = 0;
    std::uint64_t sequence = 0;  ///< Number of the last collective that it began.
    Clock::duration age{};       ///< Since it began that one, at least.
  };

  std::int32_t ranks = 1;
  State state = State::none;
  std::string call =
      {};  ///< Its call, or its last one: "all_reduce #5 [train.cpp:42]"; may be empty.
  /// The collective that this is; 0: none, as for messages.
  std::uint64_t communicator = 0, sequence = 0;
  Clock::duration age{};              ///< Time in the call, or since it ended.
  std::vector<Reached> reached = {};  ///< Its communicators that matter most, the largest first.
};

/// Limits of what one node tells at once.
constexpr std::size_t rank_calls_max = 64, reached_max = 4, call_bytes_max = 160;
/// A shorter wait is a call's usual course.
constexpr auto waits_from = std::chrono::seconds(1);

/// An agent tells what has changed, at most once in so long: the more nodes a job has, the less
/// often, so that a daemon hears of no more than 2,000 nodes of a job in a second.
constexpr Clock::duration calls_told_every(int nodes) {
  return std::max<Clock::duration>(std::chrono::seconds(2), nodes * std::chrono::microseconds(500));
}

}  // namespace dlaunch::rendezvous
