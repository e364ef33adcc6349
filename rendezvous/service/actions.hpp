#pragma once

#include "runtime/base/deadline.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dlaunch::rendezvous {

/// Names of jobs, nodes and hosts go into logs, sentences and file names.
constexpr std::size_t name_bytes_max = 255;

/// What an operator asks of a service.
struct Action {
  enum class Kind : std::uint8_t {
    stop,        ///< The job ends.
    drain,       ///< The job's epoch goes on to its end; no node is let in, none begins after it.
    remove,      ///< The job ends, if it has not, and nothing is known of it any more.
    evict,       ///< The node counts as lost, and is told why.
    drain_all,   ///< No new job is taken.
    resume_all,  ///< New jobs are taken again.
    backup,      ///< The state that survives a restart is copied while the service goes on.
  };
  Kind kind = Kind::stop;
  std::string job;          ///< Empty for actions on the service.
  std::string node;         ///< For `evict` alone.
  std::string reason;       ///< The operator's own words; may be empty.
  std::string by;           ///< The operator's name.
  std::string from;         ///< The address that asked.
  std::string backup = {};  ///< Its name, for `backup` alone.
};

/// "stop", "drain", "remove", "evict", "drain-all", "resume-all",
/// "backup".
std::string_view name_of(Action::Kind kind);

/// The outcome of an action, with a sentence for the operator.
struct ActionOutcome {
  enum class Result : std::uint8_t { done, no_job, no_node, not_now };
  Result result = Result::done;
  std::string sentence;
  /// Waits until what was changed outlives the process; false at the deadline. Any thread. Null:
  /// there is nothing to wait for.
  std::function<bool(Clock::time_point deadline)> outlives = nullptr;
};

/// The exit code of a job that an operator stops or removes, unless it has failed before; the same
/// as after SIGTERM.
constexpr int stopped_by_operator = 143;

}  // namespace dlaunch::rendezvous
