#pragma once

#include "runtime/base/text/wall_clock.hpp"

#include <string>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The kernel's settings for the core of a process that dies of a signal such as SIGSEGV: core(5).
struct CoreRule {
  std::string pattern;            ///< /proc/sys/kernel/core_pattern; "" where it is not known.
  bool appends_pid = false;       ///< /proc/sys/kernel/core_uses_pid.
  bool limit_is_zero = false;     ///< RLIMIT_CORE: no core file is written.
  std::string working_directory;  ///< Ours, in which the workers begin.
};
CoreRule read_core_rule();

/// An absolute pattern of glob(7) for the core file of a process; empty where a program takes it,
/// or nothing is written. Parts that only the kernel knows are a "*". Pure.
std::string core_files_of(const CoreRule& rule, pid_t pid, int signal);

/// The core file that was written since then; empty where there is none.
std::string find_core_file(const CoreRule& rule, pid_t pid, int signal,
                           WallClock::time_point since);

/// A sentence about a core of which no file was found: the program that took it, or why there is
/// none; empty where there is nothing to say. Pure.
std::string core_note(const CoreRule& rule, pid_t pid, bool core_dumped);

/// Whether the signal's default action is to write a core file. Pure.
bool dumps_core(int signal);

}  // namespace dlaunch::launcher
