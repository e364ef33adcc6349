#pragma once

#include "launcher/request/options.hpp"

#include <optional>

namespace dlaunch::launcher {

/// `dlaunch bench`: puts the path of dlaunch-bench, which lies beside the launcher, into
/// options.program, and lets it read its options once, so that what is wrong with them is said by
/// one process. Returns how dlaunch is to end where there is nothing to launch: --help, a refusal
/// (both have been said by then), or no such program.
std::optional<EarlyExit> prepare_bench(Options& options, int workers);

}  // namespace dlaunch::launcher
