#pragma once

#include "collectives/transport/biased_mutex.hpp"

#include <dlaunch/store.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace dlaunch::transport {

/// The threads that share a mesh. One at a time has the lock; of those that wait for something to
/// arrive one polls, and the others sleep until it has moved something or stops. A thread that is
/// alone pays for a lock that is biased towards it and nothing else.
///
/// Callers go before the progress thread, a thread that polls when nobody else does: it never
/// stands before the lock, takes its turn when nobody has called for a while, so that a program
/// that calls often is not disturbed, and loses it to the first caller that wants it.
class ProgressLock {
 public:
  using Held = std::unique_lock<BiasedMutex>;

  /// Before any other thread uses it; this process has registered for remote barriers.
  void allow_bias() noexcept { mutex_.allow_bias(); }
  [[nodiscard]] Held lock() {
    acquire();
    return Held(mutex_, std::adopt_lock);
  }

  /// A lock that does not count as a call: the progress thread does not step aside for it.
  [[nodiscard]] Held try_lock() { return Held(mutex_, std::try_to_lock); }

  /// The progress thread's: whether a caller has had the lock since it asked before. Without the
  /// lock, which would cost a busy caller its bias.
  bool was_called() noexcept {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    return std::exchange(calls_seen_, calls) != calls;
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
  bool are_wanted() const noexcept { return mutex_.is_wanted(); }
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
    mutex_.lock();
    calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  BiasedMutex mutex_;
  std::condition_variable_any changed_;
  bool polling_ = false;
  int sleeping_ = 0;
  int callers_ = 0;
  bool attended_ = false;
  std::atomic<std::uint64_t> calls_{0};  ///< How often a caller has had the lock; changed under it.
  std::uint64_t calls_seen_ = 0;         ///< The progress thread's: the same when it last asked.
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
