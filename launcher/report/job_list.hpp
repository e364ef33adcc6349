#pragma once

#include "runtime/base/text/wall_clock.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

/// The jobs of a user on this host, for `dlaunch ps`: plain values, and their printed forms. Pure.
namespace dlaunch::launcher {

enum class JobState : std::uint8_t {
  waiting,     ///< Waits for other nodes, or for a place; no worker has been started yet.
  running,     ///< Its workers run.
  restarting,  ///< All workers have ended, and will be started again.
  stopping,    ///< Its workers are being ended.
  ended,       ///< Its workers here have ended, and it is not known yet what follows.
};
/// "waiting".
const char* state_text(JobState state);

/// A launcher's description of itself: one node of a job.
struct JobEntry {
  std::string job = {}, node = {}, host = {};
  JobState state = JobState::waiting;
  std::uint32_t ranks_here = 0;
  std::uint32_t world_size = 0;  ///< 0 while it is not known.
  std::uint32_t attempt = 0;
  WallClock::time_point began = {};  ///< When the launcher was started.
  /// Clock ticks from the host's boot to the start of the front process; 0 where it is gone.
  /// Distinguishes the process from a later one with its number.
  std::uint64_t front_started = 0;
  std::string program = {};  ///< With its arguments, cut to fit a message.
};

/// A launcher that has answered. The numbers are those of the pid namespace in which it was asked.
struct FoundJob {
  JobEntry entry = {};
  pid_t agent = 0;  ///< 0: it cannot be seen, as from outside of its container.
  pid_t front = 0;  ///< The launcher's first process, which takes signals; 0 as above.
};

/// The fate of a job whose node on this host leaves in order.
struct JobDrained {
  enum class Then : std::uint8_t {
    goes_on,      ///< It is elastic, and has enough other nodes.
    too_few,      ///< It is elastic, and waits for another node in place of this one.
    not_elastic,  ///< It ends on all nodes.
    hosted_here,  ///< The same: the leaving node hosts the rendezvous.
    only_node,    ///< It has no other node.
  };
  Then then = Then::only_node;
  std::int32_t nodes_left = 0;   ///< Nodes without the leaving one.
  std::int32_t nodes_least = 1;  ///< The fewest with which the job runs.
};
/// "goes on without it, with 3 nodes".
std::string drained_text(const JobDrained& drained);

/// A line each, below a line of heads. `now` is for their ages.
std::string list_text(const std::vector<FoundJob>& jobs, WallClock::time_point now);
/// A line of JSON each.
std::string list_json(const std::vector<FoundJob>& jobs, WallClock::time_point now);

}  // namespace dlaunch::launcher
