#pragma once

#include "runtime/base/deadline.hpp"

#include <chrono>

namespace dlaunch::launcher {

/// The rules for workers after a failure and at the end: set by options, obeyed by the supervisor.
/// A part of JobSpec and of SupervisorRules.
struct FailureRules {
  bool continue_on_failure = false;  ///< --on-failure continue.
  std::chrono::milliseconds failure_grace = failure_grace_standard;
  /// Whether the grace was set by the user: then workers that do not use the runtime get it, too.
  bool failure_grace_given = false;
  std::chrono::milliseconds shutdown_timeout{};  ///< From the first signal to SIGKILL.
  /// After one has ended with 0, for the others: until they are told of, and until they are ended;
  /// 0: never.
  std::chrono::milliseconds straggler_notice{};
  std::chrono::milliseconds straggler_timeout{};
  /// From the start of all workers on, until each has become ready; 0: no limit.
  std::chrono::milliseconds ready_timeout{};
};

}  // namespace dlaunch::launcher
