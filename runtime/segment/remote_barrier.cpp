#include "runtime/segment/remote_barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dlaunch {

bool allow_remote_barriers() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0) == 0;
}

void remote_barrier() noexcept {
  // The call cannot fail in a process that was allowed to register.
  static_cast<void>(::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0));
}

}  // namespace dlaunch
