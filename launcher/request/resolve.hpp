#pragma once

#include "launcher/request/job_spec.hpp"
#include "launcher/request/request.hpp"

#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// What the launcher was started with that no option says.
struct LaunchContext {
  /// These stay ignored, for the launcher and for the workers, even if --signals-to-handle names
  /// them: nohup would be of no use otherwise.
  std::vector<int> ignored_signals;
  std::string directory = {};  ///< The current one, from which a relative --cwd counts.
  std::string bench_program = "dlaunch-bench";  ///< Path of the program behind `dlaunch bench`.
};

/// What the job is to be: values are read, and checked against each other. Pure.
std::variant<JobSpec, EarlyExit> resolve(const Request& request, const LaunchContext& context = {});

}  // namespace dlaunch::launcher
