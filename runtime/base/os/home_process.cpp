#include "runtime/base/os/home_process.hpp"

#include <new>

#include <pthread.h>
#include <sys/mman.h>

namespace dlaunch {

constinit HomeProcess::Number HomeProcess::last_{0};
constinit HomeProcess::Number HomeProcess::ordinary_{0};
constinit HomeProcess::Number* HomeProcess::current_ = &ordinary_;
const bool HomeProcess::is_placed_ = place_current();

/// If two threads ask at once, one of them sets the number.
std::uint32_t HomeProcess::new_number() noexcept {
  std::uint32_t none = 0;
  const std::uint32_t fresh = last_.fetch_add(1, std::memory_order_relaxed) + 1;
  return current().compare_exchange_strong(none, fresh, std::memory_order_relaxed) ? fresh : none;
}

/// Done when the library is loaded. Kernels from 4.14 on clear the page in every child. On others a
/// child of fork(3) clears the number itself, by a handler that only a lack of memory prevents.
bool HomeProcess::place_current() noexcept {
  ::pthread_atfork(nullptr, nullptr, [] { current().store(0, std::memory_order_relaxed); });
  void* const page =
      ::mmap(nullptr, sizeof(Number), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  if (::madvise(page, sizeof(Number), MADV_WIPEONFORK) != 0) {
    ::munmap(page, sizeof(Number));
    return false;
  }
  current_ = ::new (page) Number{ordinary_.load(std::memory_order_relaxed)};
  return true;
}

}  // namespace dlaunch
