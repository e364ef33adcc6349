#pragma once

#include "launcher/subcommands/find_jobs.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <string>

namespace dlaunch::launcher {

/// A launcher that was found and is pinned by a pidfd: its number cannot become another process's.
struct HeldLauncher {
  std::string name;       ///< "job demo (pid 4711)"; without a number where `seen` is false.
  bool seen = false;      ///< Else it is in a pid namespace that we do not see.
  unique_fd process;      ///< Empty where it has ended, or is not seen.
  unique_fd farewell;     ///< Empty if no farewell will come.
  std::string problem{};  ///< Why it cannot be held, where the system refused; else empty.
};
HeldLauncher hold(const StatusFolder& folder, const FoundJobs::Found& found);

/// Waits for the launcher's end; whether it has ended by the deadline.
bool wait_until(const HeldLauncher& held, Clock::time_point deadline);
/// "job demo (pid 4711) has ended with 143 (SIGTERM)\n", of one that has.
std::string how_it_ended(const HeldLauncher& held);

}  // namespace dlaunch::launcher
