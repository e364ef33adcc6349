#include "collectives/transport/progress_lock.hpp"

namespace dlaunch::transport {

bool ProgressLock::take(Clock::time_point deadline) {
  if (!polling_) {
    polling_ = true;
    return true;
  }
  ++sleeping_;
  changed_.wait_until(mutex_, deadline);
  --sleeping_;
  return false;
}

bool ProgressLock::take_when_quiet() noexcept {
  if (was_called() || !is_quiet()) return false;
  return polling_ = attended_ = true;
}

void ProgressLock::finish() noexcept {
  polling_ = attended_ = false;
  tell();
}

bool ProgressLock::tell() noexcept {
  if (sleeping_ > 0) changed_.notify_all();
  return polling_;
}

}  // namespace dlaunch::transport
