#pragma once

#include <dlaunch/error.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// What a short-lived tool has printed.
struct Captured {
  std::string output;
  int code = -1;        ///< -1: it could not be started, was killed, or did not end in time.
  bool in_time = true;  ///< It ended before the deadline.
};

/// What is wanted of a tool's output, and for how long it is waited for; then it is killed.
struct CaptureRules {
  Clock::duration patience{};
  std::size_t bytes_max = 0;  ///< What it prints beyond is lost.
  bool with_stderr = false;   ///< Else what it says there is dropped.
};

/// Runs a program, given by its path and arguments, with an empty stdin, and waits for it. Never
/// throws. To be called where no other thread reaps children.
Captured capture(const std::vector<std::string>& line, const CaptureRules& rules);

}  // namespace dlaunch::launcher
