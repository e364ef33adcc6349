#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// The value of a variable in a list of "NAME=value"; the first one counts, as for getenv.
std::optional<std::string_view> lookup(std::span<const std::string> environment,
                                       std::string_view name);

/// True for the variables that the launcher itself sets for workers.
bool is_worker_variable(std::string_view name);

/// True for the variables by which MPI's own launchers tell a process its rank, and themselves.
bool is_mpi_variable(std::string_view name);

}  // namespace dlaunch::launcher
