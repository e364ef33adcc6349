#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace dlaunch {

/// A process's state, as /proc tells it.
struct ProcessStat {
  char state = '?';         ///< 'R', 'S', 'T' (stopped), 'Z'...
  std::int32_t parent = 0;  ///< 0 where it has none that can be seen.
  /// Its processor time, and that of its children that have been waited for.
  std::chrono::milliseconds cpu_time{};
  std::uint64_t started = 0;  ///< Clock ticks since boot: tells it from a later one of that number.
};
/// nullopt where there is none of that number, or /proc is not there.
std::optional<ProcessStat> process_stat(std::int64_t pid);

}  // namespace dlaunch
