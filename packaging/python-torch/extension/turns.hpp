#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dlaunch::torch_backend {

/// One thread at a time, in the order in which they came: a thread that waits in slices has others
/// go first between two of them, which a plain mutex does not promise.
class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const std::uint64_t own = next_++;
    while (own != now_) changed_.wait(lock);
  }
  /// False, and nothing is taken, where another thread has it or waits for it.
  bool try_lock() {
    const std::lock_guard lock(mutex_);
    if (next_ != now_) return false;
    ++next_;
    return true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      ++now_;
      if (now_ == next_) return;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0;
  std::uint64_t now_ = 0;
};

}  // namespace dlaunch::torch_backend
