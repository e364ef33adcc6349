#pragma once

#include "launcher/job/front.hpp"
#include "launcher/machine/machine.hpp"
#include "launcher/pmi/core/program.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/process/run_directory.hpp"
#include "launcher/request/job_spec.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/base/text/wall_clock.hpp"

#include <optional>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// What the agent of a node was asked for; made before it is forked.
struct AgentTask {
  const JobSpec spec;
  std::vector<std::string> environment;
  std::vector<std::string> notes;  ///< The spec's, and what this machine adds: to be said once.
  Machine machine = {};
  int workers = 1;
  std::string job = {};      ///< Its id, where this node gives it one.
  std::string node_id = {};  ///< --node-id, or what nobody else is called.
  RunDirectory run_directory = {};
  std::optional<Key> job_key = {};  ///< Key of the job's secret, if it has one.
  pmi::Speech mpi = {};             ///< By what MPI ranks learn of each other.
  /// When the job is to end; nullopt: no such time is known.
  std::optional<WallClock::time_point> deadline = {};
  WallClock::time_point deadline_latest{};  ///< Up to then workers may put it off.
  Clock::time_point begun{};                ///< When dlaunch was started, for --timings.
  Parent parent = {};                       ///< The process that started dlaunch.
};

/// How the launcher's own lines are written; the job's id may become known later.
Voice voice_of(const AgentTask& task);

/// Runs a job on this node from the start of its workers to the end of the last process; returns
/// the exit code. To be called once, in the process that run_front forked. Problems that end it
/// are said on stderr.
int run_agent(const AgentTask& task, const AgentSeat& seat);

}  // namespace dlaunch::launcher
