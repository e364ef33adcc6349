#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// The kernel's count of the processes that it has killed for lack of memory, as far as this
/// process can see: those of its cgroup, in which the workers are, else of the host.
struct KillCount {
  std::string file;  ///< The file that has the count.
  long count = 0;
};
/// nullopt where no file tells.
std::optional<KillCount> read_kill_count();
/// That of the cgroup (v2) with this directory; nullopt where it has no memory controller.
std::optional<KillCount> read_kill_count_of(const std::string& cgroup);

/// The files that may have the count of a process with this /proc/self/cgroup, the one that tells
/// most first. Pure.
std::vector<std::string> kill_count_files(std::string_view proc_self_cgroup);

/// The number after "oom_kill" in memory.events, memory.oom_control and /proc/vmstat. Pure.
std::optional<long> kill_count_in(std::string_view text);

}  // namespace dlaunch::launcher
