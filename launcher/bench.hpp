#pragma once

#include "launcher/request/job_spec.hpp"

#include <optional>

namespace dlaunch::launcher {

/// `dlaunch bench`: lets its program read its options once, so that what is wrong with them is said
/// by one process. Returns how dlaunch is to end where there is nothing to launch: --help, a
/// refusal (both have been said by then), or no such program.
std::optional<EarlyExit> check_bench(const JobSpec& spec, int workers);

}  // namespace dlaunch::launcher
