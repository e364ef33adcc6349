#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch stack [JOB] [--rank R,R-R] [--short] [--timeout TIME]`: shows the stacks of a live
/// job's ranks on this host.
EarlyExit run_stack(std::span<const std::string> arguments);

const OptionTable& stack_options();

}  // namespace dlaunch::launcher
