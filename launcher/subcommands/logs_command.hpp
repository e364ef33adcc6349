#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch logs [JOB] [--rank R,R-R] [--follow] [--stdout] [--stderr] [--dir DIR]`: shows what the
/// ranks of a live job of this user, or of one that has ended, have written to their log files on
/// this host.
EarlyExit run_logs(std::span<const std::string> arguments);

const OptionTable& logs_options();

}  // namespace dlaunch::launcher
