#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The processes whose parent is this process, orphans that it adopted as a subreaper included.
/// Empty where /proc does not tell.
std::vector<pid_t> child_processes();

/// The processes of this host that have a TCP connection to that port of any host. Empty where
/// /proc does not tell.
std::vector<pid_t> processes_connected_to(std::uint16_t port);

/// A process that does not end, by /proc.
struct Hanging {
  pid_t pid = 0;
  std::string command;  ///< Its name.
  char state = '?';     ///< 'D' while the kernel holds on to it.
  std::string wchan;    ///< The kernel's function in which it waits; empty where that is not told.
};
/// The ones of these processes that are still there.
std::vector<Hanging> hanging_among(const std::vector<pid_t>& processes);
/// "pid 7 (python3), state D, waits in nfs_wait; pid 8 (cat), state D, and 2 more". Pure.
std::string hanging_text(const std::vector<Hanging>& processes);

/// The nearest processes to this one, itself or its descendants, that have a handler for the
/// signal: the default of most signals would end the others. Empty where /proc does not tell.
std::vector<pid_t> catchers_below(pid_t pid, int signal_number);

/// The processor time of that process and of all below it, including those that have ended and were
/// waited for. 0 where /proc does not tell.
std::chrono::milliseconds cpu_time_below(pid_t pid);

/// Makes this process the one that orphans below it are handed to.
void become_subreaper();

}  // namespace dlaunch::launcher
