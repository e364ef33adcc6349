#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dlaunch {

/// What tells this thread from all that live beside it. It is read anew each time: compilers take
/// the address of a thread_local variable, and pthread_self, for constant within a function, which
/// may begin on one thread and go on on another (collectives/communicator/fiber.hpp).
inline std::uintptr_t thread_pointer() noexcept {
  std::uintptr_t pointer;
#if defined(__x86_64__)
  asm volatile("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
  asm volatile("mrs %0, tpidr_el0" : "=r"(pointer));
#else
  pointer = static_cast<std::uintptr_t>(::syscall(SYS_gettid));
#endif
  return pointer;
}

}  // namespace dlaunch
