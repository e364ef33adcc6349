#include "runtime/base/os/home_process.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <new>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dlaunch {
namespace {

/// A bit for each descriptor of a home_fd. A child finds there what it has to close without a lock
/// that another thread may have held. Higher numbers stay open in children.
constexpr int covered = 1 << 16;
constinit std::array<std::atomic<std::uint64_t>, covered / 64> kept{};

std::atomic<std::uint64_t>& word_of(int fd) noexcept {
  return kept[static_cast<std::size_t>(fd) / 64];
}
std::uint64_t bit_of(int fd) noexcept { return std::uint64_t{1} << (fd % 64); }

void close_all() noexcept {
  for (std::size_t word = 0; word < kept.size(); ++word) {
    std::uint64_t open = kept[word].exchange(0, std::memory_order_relaxed);
    for (; open != 0; open &= open - 1)
      ::close(static_cast<int>(word) * 64 + std::countr_zero(open));
  }
}

/// Done when the library is loaded; only a lack of memory prevents it.
[[maybe_unused]] const bool closes_in_children = ::pthread_atfork(nullptr, nullptr, close_all) == 0;

}  // namespace

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

void home_fd::add(int fd) noexcept {
  if (fd < covered) word_of(fd).fetch_or(bit_of(fd), std::memory_order_relaxed);
}

bool home_fd::remove(int fd, const HomeProcess& home) noexcept {
  if (fd >= covered) return true;
  if (!home.is_here()) return false;
  word_of(fd).fetch_and(~bit_of(fd), std::memory_order_relaxed);
  return true;
}

}  // namespace dlaunch
