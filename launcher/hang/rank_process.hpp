#pragma once

#include "launcher/hang/flight_dumps.hpp"
#include "launcher/hang/stack_groups.hpp"

#include <string>

#include <sys/types.h>

/// Facts from /proc about a rank's process, apart from its stack. Empty where /proc tells nothing.
namespace dlaunch::launcher {

/// The variables with which it was started, those of PyTorch, NCCL and the user's folders.
RankVariables variables_of(pid_t pid);
/// It has loaded NCCL.
bool has_nccl(pid_t pid);
/// When it began; the beginning of all time where that is not known.
Clock::time_point begin_of(pid_t pid);
/// The line of a source at "/home/u/train.py:41", as its file has it now, without indentation.
std::string source_line(const std::string& place);

}  // namespace dlaunch::launcher
