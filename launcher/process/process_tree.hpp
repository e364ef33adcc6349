#pragma once

#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The processes whose parent is this process, orphans that it adopted as a subreaper included.
/// Empty where /proc does not tell.
std::vector<pid_t> child_processes();

/// Makes this process the one that orphans below it are handed to.
void become_subreaper();

}  // namespace dlaunch::launcher
