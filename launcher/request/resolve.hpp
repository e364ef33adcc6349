#pragma once

#include "launcher/request/job_spec.hpp"
#include "launcher/request/request.hpp"

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// The launcher's surroundings that no option sets.
struct LaunchContext {
  /// Signals that stay ignored, for the launcher and for the workers, even if --signals-to-handle
  /// names them; otherwise nohup would be of no use.
  std::vector<int> ignored_signals;
  std::string directory = {};  ///< The current one, from which a relative --cwd counts.
  std::string bench_program = "dlaunch-bench";  ///< Path of the program behind `dlaunch bench`.
};

/// A refusal that is about part 2, 3, ... of the line, with that said: the user may not have meant
/// to write several programs. Other ends are returned as they are.
EarlyExit of_later_part(EarlyExit stop, std::size_t number);

/// Makes the job: reads the values and checks them against each other. Pure.
std::variant<JobSpec, EarlyExit> resolve(const Request& request, const LaunchContext& context = {});

}  // namespace dlaunch::launcher
