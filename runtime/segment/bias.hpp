#pragma once

#include "runtime/base/os/thread_pointer.hpp"
#include "runtime/segment/remote_barrier.hpp"

#include <atomic>
#include <cstdint>

namespace dlaunch {

/// A right that one thread uses again and again without a locked instruction, and that others can
/// take from it, for which they pay: D. Dice, M. Moir, W. Scherer, "Quickly Reacquirable Locks",
/// 2003. Locked instructions are dear where a thread has just written to memory that other cores
/// read: they wait until that is done.
///
/// Only in a process that has registered for remote barriers (remote_barrier.hpp).
class Bias {
 public:
  constexpr Bias() = default;
  Bias(const Bias&) = delete;
  Bias& operator=(const Bias&) = delete;

  /// Gives it to this thread. Once: a thread that had it and is late must not take another's for
  /// its own.
  void give() noexcept {
    given_to_ = thread_pointer();
    go_on();
  }
  /// Whether this thread has it, and may do until leave() what only one may. Either it sees here
  /// that it was stopped, or the thread that has stopped it sees that this one is inside: stop()
  /// executes the fence for both.
  [[nodiscard]] bool enter() noexcept {
    const std::uintptr_t me = thread_pointer();
    if (owner_.load(std::memory_order_acquire) != me) return false;
    is_inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (owner_.load(std::memory_order_acquire) == me) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() noexcept { is_inside_.store(false, std::memory_order_release); }

  // ---- One thread at a time. ----

  bool is_anothers() const noexcept {
    const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
    return owner != nobody && owner != thread_pointer();
  }
  /// From here on nobody enters; the one that had it may still be inside.
  void stop() noexcept {
    owner_.store(nobody, std::memory_order_relaxed);
    remote_barrier();
  }
  bool is_inside() const noexcept { return is_inside_.load(std::memory_order_acquire); }
  /// The thread that had it has it again.
  void go_on() noexcept { owner_.store(given_to_, std::memory_order_release); }

 private:
  static constexpr std::uintptr_t nobody = 0;

  std::atomic<std::uintptr_t> owner_{nobody};
  std::atomic<bool> is_inside_{false};  ///< Written by the owner alone.
  std::uintptr_t given_to_ = nobody;
};

}  // namespace dlaunch
