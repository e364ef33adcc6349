#pragma once

namespace dlaunch {

/// A pause between two looks at memory that another core is about to write.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace dlaunch
