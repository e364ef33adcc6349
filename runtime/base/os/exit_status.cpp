#include "runtime/base/os/exit_status.hpp"

#include "runtime/base/phrases.hpp"

#include <sys/wait.h>

namespace dlaunch {

ExitStatus exit_status_from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return {.code = 0, .signal = WTERMSIG(wait_status), .core_dumped = WCOREDUMP(wait_status) != 0};
  }
  return {.code = WEXITSTATUS(wait_status), .signal = 0, .core_dumped = false};
}

std::string describe(const ExitStatus& status) {
  return end_text(status.code, status.signal, status.core_dumped);
}

}  // namespace dlaunch
