#pragma once

#include "launcher/job/front.hpp"
#include "launcher/output/voice.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/remote/core/host_lines.hpp"
#include "launcher/request/job_spec.hpp"

#include <span>
#include <string>
#include <vector>

namespace dlaunch::launcher::remote {

/// A job on other hosts that is started from here.
struct StarterTask {
  JobSpec spec;
  std::vector<std::string> environment;  ///< Ours, which each ssh has.
  Voice voice;                           ///< For our own lines; agents have voices of their own.
  std::vector<HostStart> starts;
  std::string secret;  ///< For the first line of each input; empty: the job has none of ours.
  Parent parent = {};  ///< The process that started dlaunch.
};

/// Runs all starts until the last has ended, and shows what they write, line by line; returns the
/// exit code. To be called once, in the process that run_front forked.
int run_starter(const StarterTask& task, const AgentSeat& seat);

}  // namespace dlaunch::launcher::remote
