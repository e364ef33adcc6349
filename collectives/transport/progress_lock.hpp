#pragma once

#include <dlaunch/store.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>

namespace dlaunch::transport {

/// The threads that share a mesh. One at a time has the lock; of those that wait for something to
/// arrive one polls, and the others sleep until it has moved something or stops. A thread that is
/// alone pays for an uncontended lock and nothing else.
///
/// Callers go before the progress thread, a thread that polls when nobody else does: it waits until
/// they have been gone for a while, so that a program that calls often is not disturbed.
class ProgressLock {
 public:
  [[nodiscard]] std::unique_lock<std::mutex> lock() {
    acquire();
    return std::unique_lock(mutex_, std::adopt_lock);
  }

  [[nodiscard]] std::unique_lock<std::mutex> try_lock() {
    return std::unique_lock(mutex_, std::try_to_lock);
  }

  // ---- With the lock held. ----

  /// True if it is this thread's turn to poll; then finish() follows. Else somebody polls, and this
  /// thread has slept until that has changed something, until `deadline` at most.
  bool take(Clock::time_point deadline);
  /// The progress thread's: waits until something is `wanted` and no caller is there to see to it.
  /// False when it is to stop, else it is its turn.
  bool take_when_quiet(const std::stop_token& stop, const std::function<bool()>& wanted);
  void finish() noexcept;
  /// The progress thread polls; a caller who wants to wakes it first.
  bool is_attended() const noexcept { return attended_; }
  /// Around all that a caller does to wait.
  void enter() noexcept { ++callers_; }
  void leave() noexcept;
  /// There is something new that the progress thread may want.
  void want() noexcept;
  /// Something changed otherwise than by polling: those who sleep look again. True if somebody
  /// polls, who is to be woken, too.
  bool tell() noexcept;
  /// Others wait.
  bool are_shared() const noexcept { return polling_ || sleeping_ > 0; }
  /// Somebody stands before the lock: who spins under it is to give it up.
  bool are_wanted() const noexcept { return wanted_.load(std::memory_order_relaxed) > 0; }
  /// Runs `wait` with the lock released.
  template <class Wait>
  auto released(const Wait& wait) {
    mutex_.unlock();
    const auto result = wait();
    acquire();
    return result;
  }

 private:
  bool is_quiet() const noexcept { return callers_ == 0 && sleeping_ == 0 && !polling_; }
  void tell_progress_thread() noexcept;
  void acquire() {
    if (mutex_.try_lock()) return;
    wanted_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    wanted_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool polling_ = false;
  int sleeping_ = 0;
  int callers_ = 0;

  std::condition_variable_any quiet_;
  bool attended_ = false;
  bool progress_thread_waits_ = false;
  bool called_lately_ = false;
  std::atomic<int> wanted_{0};
};

/// A turn that was taken, however it ends.
class Turn {
 public:
  explicit Turn(ProgressLock& progress_lock) : progress_lock_(progress_lock) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { progress_lock_.finish(); }

 private:
  ProgressLock& progress_lock_;
};

/// A caller, as long as it waits.
class Caller {
 public:
  explicit Caller(ProgressLock& progress_lock) : progress_lock_(progress_lock) {
    progress_lock_.enter();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() { progress_lock_.leave(); }

 private:
  ProgressLock& progress_lock_;
};

}  // namespace dlaunch::transport
