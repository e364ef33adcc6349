#pragma once

#include "launcher/request/job_spec.hpp"

#include <optional>

namespace dlaunch::launcher {

/// For `dlaunch bench`: runs its program once to read the options, so that one process alone says
/// what is wrong with them. Returns how dlaunch ends where there is nothing to launch: after --help
/// or a refusal, which are printed by then, or because the program is not there.
std::optional<EarlyExit> check_bench(const JobSpec& spec, int workers);

}  // namespace dlaunch::launcher
