#pragma once

#include <cstddef>

namespace dlaunch {

/// A stack on which a function runs, and which gives the thread back in the midst of it. Threads
/// may take turns, one at a time. Nothing is suspended while an exception is being handled, or with
/// a lock: both are a thread's own.
class Fiber {
 public:
  using Function = void (*)(void* argument) noexcept;

  /// Throws std::system_error where there is no memory for a stack.
  Fiber(Function function, void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  /// What is suspended stays undone: its locals are not destroyed.
  ~Fiber();

  /// Calls the function on this stack, or goes on where it was suspended. True when it has
  /// returned, false if it is suspended.
  bool resume();
  /// For the function: resume() returns, and this one when it is called again.
  void suspend() noexcept;
  bool is_suspended() const noexcept { return state_ == State::suspended; }

 private:
  enum class State { resting, running, suspended };
  /// One end of a switch: what runs there, and what the sanitizers have to be told of its stack.
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
