#pragma once

#include <optional>
#include <span>
#include <string>

namespace dlaunch::rendezvous {

/// `dlaunchd check FILE`, `dlaunchd backup FILE TO` and `dlaunchd restore FROM FILE`: prints what
/// came of it and returns the exit code. Nullopt: the arguments are for something else. None of
/// them works on a file that a dlaunchd has.
std::optional<int> run_state_command(std::span<const std::string> arguments);

}  // namespace dlaunch::rendezvous
