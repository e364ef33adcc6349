#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>
#include <functional>
#include <string>

namespace dlaunch {

/// Tells somebody who has been waiting for long, once, that it waits, and why. A wait that has one
/// looks up from its work at `at`. By default nothing is ever said.
struct Notice {
  Clock::time_point at = Clock::time_point::max();
  std::function<void(const std::string& why)> say = nullptr;

  /// Until when to wait before this is due.
  Clock::time_point before(Clock::time_point deadline) const { return std::min(at, deadline); }
  /// Says it if it is due.
  void tell(const std::string& why) {
    if (Clock::now() < at) return;
    at = Clock::time_point::max();
    say(why);
  }
};

}  // namespace dlaunch
