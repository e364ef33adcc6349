#pragma once

#include <dlaunch/store.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace dlaunch::transport {

/// The threads that share a mesh. One at a time has the lock; of those that wait for something to
/// arrive one polls, and the others sleep until it has moved something or stops. A thread that is
/// alone pays for an uncontended lock and nothing else.
///
/// Callers go before the progress thread, a thread that polls when nobody else does: it never
/// stands before the lock, takes its turn when nobody has called for a while, so that a program
/// that calls often is not disturbed, and loses it to the first caller that wants it.
class ProgressLock {
 public:
  [[nodiscard]] std::unique_lock<std::mutex> lock() {
    acquire();
    return std::unique_lock(mutex_, std::adopt_lock);
  }

  /// A lock that does not count as a call: the progress thread does not step aside for it.
  [[nodiscard]] std::unique_lock<std::mutex> try_lock() {
    return std::unique_lock(mutex_, std::try_to_lock);
  }

  // ---- With the lock held. ----

  /// True if it is this thread's turn to poll; then finish() follows. Else somebody polls, and this
  /// thread has slept until that has changed something, until `deadline` at most.
  bool take(Clock::time_point deadline);
  void finish() noexcept;
  /// The progress thread's: true if it is its turn, which finish() ends, or a caller by
  /// take_over(). Nobody has called since it asked before, and nobody waits.
  bool take_when_quiet() noexcept;
  /// The progress thread has its turn.
  bool is_attended() const noexcept { return attended_; }
  /// A caller's: ends the progress thread's turn, which that thread may notice later.
  void take_over() noexcept { polling_ = attended_ = false; }
  /// Around all that a caller does to wait.
  void enter() noexcept { ++callers_; }
  void leave() noexcept { --callers_; }
  /// Something changed without polling: wakes the sleeping threads. True if a thread polls, which
  /// has to be woken, too.
  bool tell() noexcept;
  /// Whether other threads wait.
  bool are_shared() const noexcept { return polling_ || sleeping_ > 0; }
  /// Whether a thread waits for the lock, so that one that spins under it should give it up.
  bool are_wanted() const noexcept { return wanted_.load(std::memory_order_relaxed) > 0; }
  /// Runs `wait` with the lock released.
  template <class Wait>
  auto released(const Wait& wait) {
    mutex_.unlock();
    const auto result = wait();
    acquire();
    return result;
  }
  /// The progress thread's: the same, but it takes the lock again when nobody else wants it.
  template <class Wait>
  void stepped_aside(const Wait& wait) {
    mutex_.unlock();
    wait();
    for (auto pause = aside_pause_min; !mutex_.try_lock();) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, aside_pause_max);
    }
  }

 private:
  static constexpr std::chrono::microseconds aside_pause_min{50}, aside_pause_max{1000};

  bool is_quiet() const noexcept { return callers_ == 0 && sleeping_ == 0 && !polling_; }
  void acquire() {
    if (!mutex_.try_lock()) {
      wanted_.fetch_add(1, std::memory_order_relaxed);
      mutex_.lock();
      wanted_.fetch_sub(1, std::memory_order_relaxed);
    }
    ++calls_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool polling_ = false;
  int sleeping_ = 0;
  int callers_ = 0;
  bool attended_ = false;
  std::uint64_t calls_ = 0;       ///< How often a caller has had the lock,
  std::uint64_t calls_seen_ = 0;  ///< and when the progress thread last asked.
  std::atomic<int> wanted_{0};
};

/// A caller's turn; ends it however the scope is left.
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
