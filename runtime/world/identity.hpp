#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// What tells this process, this host and this moment from all others.
namespace dlaunch {

std::string own_hostname();
/// Boot id and pid namespace: two processes with the same one see the same pids.
std::string machine_id();
/// In clock ticks since boot; nullopt when there is no such process, or it is a zombie.
std::optional<std::uint64_t> start_time_of(std::int64_t pid);

}  // namespace dlaunch
