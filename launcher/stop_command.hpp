#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch stop [JOB] [--signal NAME] [--timeout TIME]`: ends a live job of this user, of which a
/// node is on this host, and waits for its launchers here.
EarlyExit run_stop(std::span<const std::string> arguments);

const OptionTable& stop_options();

}  // namespace dlaunch::launcher
