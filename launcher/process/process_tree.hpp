#pragma once

#include <cstdint>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The processes whose parent is this process, orphans that it adopted as a subreaper included.
/// Empty where /proc does not tell.
std::vector<pid_t> child_processes();

/// The processes of this host that have a TCP connection to that port of any host. Empty where
/// /proc does not tell.
std::vector<pid_t> processes_connected_to(std::uint16_t port);

/// Makes this process the one that orphans below it are handed to.
void become_subreaper();

}  // namespace dlaunch::launcher
