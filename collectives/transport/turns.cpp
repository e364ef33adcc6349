#include "collectives/transport/turns.hpp"

namespace dlaunch::transport {

bool Turns::take(Clock::time_point deadline) {
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

void Turns::finish() noexcept {
  polling_ = false;
  tell();
}

bool Turns::tell() noexcept {
  if (sleeping_ > 0) changed_.notify_all();
  return polling_;
}

}  // namespace dlaunch::transport
