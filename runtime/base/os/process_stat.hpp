#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dlaunch {

/// A process's state, as /proc tells it.
struct ProcessStat {
  char state = '?';         ///< 'R', 'S', 'T' (stopped), 'Z'...
  std::int32_t parent = 0;  ///< 0 where it has none that can be seen.
  /// Its processor time, and that of its waited-for children.
  std::chrono::milliseconds cpu_time{};
  /// Start in clock ticks since boot: tells it from a later process of that number.
  std::uint64_t started = 0;
};
/// nullopt if there is no such process, or no /proc.
std::optional<ProcessStat> process_stat(std::int64_t pid);
/// Whether the signal is in a mask of the process: "SigCgt", those that it catches, or "ShdPnd",
/// those that were sent to it and not taken. False where that cannot be told.
bool is_in_signal_mask(std::int64_t pid, std::string_view mask, int signal_number);

}  // namespace dlaunch
