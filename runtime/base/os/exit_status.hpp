#pragma once

#include <string>

namespace dlaunch {

/// How a process ended, as wait(2) tells it. A plain value.
struct ExitStatus {
  int code = 0;    ///< The argument of exit(); meaningless if a signal ended it.
  int signal = 0;  ///< The signal that ended it, 0 if none did.
  bool core_dumped = false;

  bool succeeded() const { return code == 0 && signal == 0; }
  /// As a shell says it: its own code, or 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

ExitStatus exit_status_from_wait(int wait_status);
/// "killed by SIGKILL", "killed by SIGSEGV (core dumped)", "exited with 3".
std::string describe(const ExitStatus& status);

}  // namespace dlaunch
