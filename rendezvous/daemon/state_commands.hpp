#pragma once

#include "rendezvous/state/state_place.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>

namespace dlaunch::rendezvous {

/// The prefix of `state` that the configuration of a build without SQLite refuses.
bool has_sqlite();

/// The state file at `path`, for a daemon. Throws Error where it may not be used.
std::unique_ptr<StatePlace> open_state_file(const std::string& path);

/// `dlaunchd check FILE`, `dlaunchd backup FILE TO` and `dlaunchd restore FROM FILE`: prints what
/// came of it and returns the exit code. Nullopt: the arguments are for something else. None of
/// them works on a file that a dlaunchd has.
std::optional<int> run_state_command(std::span<const std::string> arguments);

}  // namespace dlaunch::rendezvous
