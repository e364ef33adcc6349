#pragma once

#include <cstddef>

namespace dlaunch {

/// A stack on which a function runs, and which can give the thread back in the middle of it.
/// Threads may take turns, one at a time. The function must not be suspended while it handles an
/// exception or holds a lock: both belong to a thread.
class Fiber {
 public:
  using Function = void (*)(void* argument) noexcept;

  /// Throws std::system_error where there is no memory for a stack.
  Fiber(Function function, void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  /// A suspended function stays unfinished: its locals are not destroyed.
  ~Fiber();

  /// Calls the function on this stack, or goes on where it was suspended. True when it has
  /// returned, false if it is suspended.
  bool resume();
  /// For the function: makes resume() return; itself returns when resume() is called again.
  void suspend() noexcept;
  bool is_suspended() const noexcept { return state_ == State::suspended; }

 private:
  enum class State { resting, running, suspended };
  /// One end of a switch: its saved stack pointer, and the facts about its stack for sanitizers.
  struct Side {
    void* top = nullptr;  ///< What was saved of it; the stack pointer.
    const void* stack = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;
    void* tsan = nullptr;
  };

  static void enter(void* fiber) noexcept;
  [[noreturn]] void loop() noexcept;
  void leave(Side& from, Side& to) noexcept;

  const Function function_;
  void* const argument_;
  void* memory_ = nullptr;  ///< A guard page, and the stack above it.
  State state_ = State::resting;
  Side thread_, fiber_;
};

}  // namespace dlaunch
