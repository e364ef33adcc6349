#pragma once

#include <string>

namespace dlaunch::launcher {

/// What `dlaunch --help` prints: lines of everyday use, and the subcommands.
std::string brief_help();

}  // namespace dlaunch::launcher
