#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>
#include <functional>
#include <string>

namespace dlaunch {

/// A message to the user of a long wait: says once that it waits, and why. A wait with a notice
/// interrupts its work at `at`. By default nothing is ever said.
struct Notice {
  Clock::time_point at = Clock::time_point::max();
  std::function<void(const std::string& why)> say = nullptr;

  /// The time until which to wait: `deadline`, or when this is due.
  Clock::time_point before(Clock::time_point deadline) const { return std::min(at, deadline); }
  /// Says it if it is due.
  void tell(const std::string& why) {
    if (Clock::now() < at) return;
    at = Clock::time_point::max();
    say(why);
  }
};

}  // namespace dlaunch
