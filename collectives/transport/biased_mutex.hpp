#pragma once

#include "runtime/segment/bias.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace dlaunch::transport {

/// A mutex that is biased towards a thread which takes it again and again (bias.hpp). Another
/// thread that locks it ends the bias, and pays for that; one that only tries to lock it suspends
/// the bias until it unlocks. Later a bias begins again, towards whichever thread is then alone,
/// each time after more calls.
///
/// Without allow_bias() it is a mutex as any other. Lockable, not recursive.
class BiasedMutex {
 public:
  BiasedMutex() = default;
  BiasedMutex(const BiasedMutex&) = delete;
  BiasedMutex& operator=(const BiasedMutex&) = delete;

  /// Before any other thread uses it; this process has registered for remote barriers.
  void allow_bias() noexcept { is_allowed_ = true; }

  void lock() {
    if (!lock_by_bias()) lock_by_mutex();
  }
  /// Does not wait: false where another thread has it.
  bool try_lock() { return lock_by_bias() || try_lock_by_mutex(); }
  void unlock() noexcept {
    if (Bias* const bias = locked_by_) {
      locked_by_ = nullptr;
      bias->leave();
    } else {
      unlock_mutex();
    }
  }
  /// Whether a thread waits in lock(). A hint, for any thread.
  bool is_wanted() const noexcept { return waiting_.load(std::memory_order_relaxed) > 0; }

 private:
  static constexpr std::size_t biases_max = 16;
  /// How often a thread takes the mutex, with no other between, before it is favoured. Doubled for
  /// each bias that has ended.
  static constexpr std::size_t streak_min = 64;

  bool lock_by_bias() noexcept {
    Bias* const bias = bias_.load(std::memory_order_acquire);
    if (bias == nullptr || !bias->enter()) return false;
    locked_by_ = bias;
    return true;
  }
  void lock_by_mutex();
  bool try_lock_by_mutex();
  void unlock_mutex() noexcept;
  void end_anothers();
  void note_locked();

  std::atomic<Bias*> bias_{nullptr};  ///< Changed with mutex_ locked.
  std::mutex mutex_;
  std::atomic<int> waiting_{0};

  // For the thread that has locked it.
  Bias* locked_by_ = nullptr;  ///< Null: by mutex_.
  Bias* suspended_ = nullptr;  ///< Goes on when mutex_ is unlocked.
  std::uintptr_t last_ = 0;    ///< The thread_pointer of the last thread that locked it,
  std::size_t streak_ = 0;     ///< and how often it has, with no other between.
  bool is_allowed_ = false;
  std::size_t begun_ = 0;  ///< Biases so far.
  std::array<Bias, biases_max> biases_;
};

}  // namespace dlaunch::transport
