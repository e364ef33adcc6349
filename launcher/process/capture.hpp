#pragma once

#include <dlaunch/error.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// The output of a short-lived tool.
struct Captured {
  std::string output;
  int code = -1;        ///< -1: it could not be started, was killed, or did not end in time.
  bool in_time = true;  ///< It ended before the deadline.
};

/// How much of a tool's output is wanted, and how long the tool may run before it is killed.
struct CaptureRules {
  Clock::duration patience{};
  std::size_t bytes_max = 0;  ///< Output beyond this is lost.
  bool with_stderr = false;   ///< Whether stderr is kept, too; else it is dropped.
};

/// Runs a program, given by its path and arguments, with an empty stdin, and waits for it. Never
/// throws. To be called where no other thread reaps children.
Captured capture(const std::vector<std::string>& line, const CaptureRules& rules);

}  // namespace dlaunch::launcher
