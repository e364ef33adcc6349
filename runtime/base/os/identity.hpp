#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// Identities that tell this process, this host and this moment from all others.
namespace dlaunch {

std::string own_hostname();
/// Boot id and pid namespace: two processes with the same one see the same pids.
std::string machine_id();
/// Boot id and network namespace, without spaces. Processes are on one host if they agree in this
/// and in the host's name: containers may have equal names, and clones of a suspended machine equal
/// boot ids.
std::string host_id();
/// The boot id: all processes with the same one run on the same processors. Empty where /proc does
/// not say.
std::string kernel_id();
/// Boot id, the namespaces of the network, of pids and of users, and the effective user: two
/// processes with the same one can hand memory to each other and know each other's pids. Empty
/// where one of them is not known.
std::string memory_id();
/// The start time of a process, in clock ticks since boot; nullopt if there is none, or it is a
/// zombie.
std::optional<std::uint64_t> start_time_of(std::int64_t pid);

}  // namespace dlaunch
