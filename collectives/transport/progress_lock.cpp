#include "collectives/transport/progress_lock.hpp"

#include <utility>

namespace dlaunch::transport {

bool ProgressLock::take(Clock::time_point deadline) {
  if (!polling_) {
    polling_ = true;
    return true;
  }
  std::unique_lock held(mutex_, std::adopt_lock);
  ++sleeping_;
  changed_.wait_until(held, deadline);
  --sleeping_;
  held.release();  // The caller's.
  return false;
}

bool ProgressLock::take_when_quiet() noexcept {
  if (std::exchange(calls_seen_, calls_) != calls_ || !is_quiet()) return false;
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
