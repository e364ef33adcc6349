#pragma once

#include "runtime/base/text/wall_clock.hpp"

#include <dlaunch/error.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// The times of a launch's steps on this node, for the last attempt; unset for a step not taken.
/// Pure.
struct LaunchTimes {
  Clock::time_point begun{};                           ///< dlaunch was started.
  std::optional<Clock::time_point> agent = {};         ///< The options are read, the agent runs.
  std::optional<Clock::time_point> placed = {};        ///< The nodes have met.
  std::optional<Clock::time_point> started = {};       ///< All workers run.
  std::optional<Clock::time_point> joined = {};        ///< The first of them uses the runtime.
  std::optional<Clock::time_point> first_ended = {};   ///< The first end, or the first signal.
  std::optional<Clock::time_point> nothing_left = {};  ///< No process is left.

  /// Begins another attempt's times; its meeting counts from the end of the last attempt.
  void begin_again();
  static void mark(std::optional<Clock::time_point>& step, Clock::time_point now) {
    if (!step) step = now;
  }
};

/// A part of the launch.
struct Phase {
  std::string_view name;  ///< "first_join".
  Clock::duration took{};

  bool operator==(const Phase&) const = default;
};
/// The completed phases, in order.
std::vector<Phase> phases_of(const LaunchTimes& times);

/// "options 3 ms, rendezvous 12 s, start 4 ms, first join 20 ms, run 3.2 s, stop 15 ms".
std::string timings_text(const std::vector<Phase>& phases);
/// One line, with its end: an object with the seconds of each phase, and which job's they are.
std::string timings_json(const std::vector<Phase>& phases, const std::string& job,
                         const std::string& node, int attempt, WallClock::time_point now);

}  // namespace dlaunch::launcher
