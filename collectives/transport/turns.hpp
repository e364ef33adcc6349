#pragma once

#include <dlaunch/store.hpp>

#include <condition_variable>
#include <mutex>

namespace dlaunch::transport {

/// The threads that share a mesh. One at a time has the lock; of those that wait for something to
/// arrive one polls, and the others sleep until it has moved something or stops. A thread that is
/// alone pays for an uncontended lock and nothing else.
class Turns {
 public:
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // ---- With the lock held. ----

  /// True if it is this thread's turn to poll; then finish() follows. Else somebody polls, and this
  /// thread has slept until that has changed something, until `deadline` at most.
  bool take(Clock::time_point deadline);
  void finish() noexcept;
  /// Something changed otherwise than by polling: those who sleep look again. True if somebody
  /// polls, who is to be woken, too.
  bool tell() noexcept;
  /// Others wait.
  bool are_shared() const noexcept { return polling_ || sleeping_ > 0; }
  /// Runs `wait` with the lock released.
  template <class Wait>
  auto released(const Wait& wait) {
    mutex_.unlock();
    const auto result = wait();
    mutex_.lock();
    return result;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool polling_ = false;
  int sleeping_ = 0;
};

/// A turn that was taken, however it ends.
class Turn {
 public:
  explicit Turn(Turns& turns) : turns_(turns) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { turns_.finish(); }

 private:
  Turns& turns_;
};

}  // namespace dlaunch::transport
