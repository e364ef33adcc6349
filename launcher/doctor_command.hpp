#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>

namespace dlaunch::launcher {

/// `dlaunch doctor [--peer HOST:PORT] [--json]`: looks at what of this host makes jobs fail. Ends
/// with 1 where it finds a problem.
EarlyExit run_doctor(std::span<const std::string> arguments);

const OptionTable& doctor_options();

}  // namespace dlaunch::launcher
