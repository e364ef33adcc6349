#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>
#include <chrono>
#include <limits>

namespace dlaunch {

/// Milliseconds until `deadline` as poll(2) wants them: rounded up, never negative.
inline int poll_timeout_ms(Clock::time_point deadline, Clock::time_point now = Clock::now()) {
  if (deadline == Clock::time_point::max()) return -1;
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

/// `now + timeout` without overflow: a huge timeout means no deadline.
inline Clock::time_point deadline_after(Clock::duration timeout,
                                        Clock::time_point now = Clock::now()) {
  return timeout >= Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout;
}

/// The default time after the first failure in which the other ranks may notice it by themselves
/// and report what it cost them. SpawnOptions, which is public, has the same.
constexpr std::chrono::milliseconds failure_grace_standard{500};

}  // namespace dlaunch
