#pragma once

#include <dlaunch/error.hpp>

#include <string>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The programs of this host that show stacks: paths, empty where there is none.
struct StackTools {
  std::string py_spy, gdb;
};
/// Found by PATH.
StackTools find_stack_tools();

/// The stack of a process, of all its threads.
struct ProcessStack {
  pid_t pid = 0;        ///< If a shell has one child, the child's.
  std::string program;  ///< "python3.11".
  std::string by;       ///< "gdb"; "the kernel (gdb is not installed)".
  bool by_kernel = false;
  std::string text;     ///< Lines; empty where the process has ended.
  bool denied = false;  ///< A tool was found, but may not look into the process.
};
/// Asks py-spy for a Python, else gdb, else the kernel; a tool that takes longer than `limit` is
/// killed. The process stands still meanwhile. May be called from several threads.
ProcessStack read_stack(pid_t pid, const StackTools& tools, Clock::duration limit);

}  // namespace dlaunch::launcher
