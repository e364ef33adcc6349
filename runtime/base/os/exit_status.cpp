#include "runtime/base/os/exit_status.hpp"

#include <csignal>
#include <cstring>

#include <sys/wait.h>

namespace dlaunch {

ExitStatus exit_status_from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return {.code = 0, .signal = WTERMSIG(wait_status), .core_dumped = WCOREDUMP(wait_status) != 0};
  }
  return {.code = WEXITSTATUS(wait_status), .signal = 0, .core_dumped = false};
}

std::string signal_name(int number) {
  if (const char* name = ::sigabbrev_np(number)) return std::string("SIG") + name;
  if (number >= SIGRTMIN && number <= SIGRTMAX) {
    return number == SIGRTMIN ? "SIGRTMIN" : "SIGRTMIN+" + std::to_string(number - SIGRTMIN);
  }
  return "signal " + std::to_string(number);
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return "exited with " + std::to_string(status.code);
  return "killed by " + signal_name(status.signal) + (status.core_dumped ? " (core dumped)" : "");
}

}  // namespace dlaunch
