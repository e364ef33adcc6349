#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch drain [JOB] [--timeout TIME]`: this host leaves a live job of this user in order, and
/// the others hear why.
EarlyExit run_drain(std::span<const std::string> arguments);

const OptionTable& drain_options();

}  // namespace dlaunch::launcher
