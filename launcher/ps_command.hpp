#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch ps [--json]`: lists the live jobs of this user on this host.
EarlyExit run_ps(std::span<const std::string> arguments);

const OptionTable& ps_options();

}  // namespace dlaunch::launcher
