#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch status [JOB] [--json] [--flight] [--timeline FILE] [--watch TIME]`: finds the live jobs
/// of this user on this host, asks their agents, and returns what is to be said, and with which
/// code to end. With --watch it prints, and returns when the jobs have ended.
EarlyExit run_status(std::span<const std::string> arguments);

const OptionTable& status_options();

}  // namespace dlaunch::launcher
