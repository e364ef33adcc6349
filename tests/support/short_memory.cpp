#include "tests/support/short_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace dlaunch::test {
namespace {

thread_local Shortage shortage;
thread_local long left = 0;  ///< Of the failures, once they have begun.
thread_local bool failed = false;
thread_local std::size_t largest = 0;

}  // namespace

void run_short(Shortage next) {
  shortage = next;
  left = 0;
  failed = false;
  largest = 0;
}

bool have_enough() {
  const bool was = failed;
  run_short({});
  return was;
}

bool allocation_fails(std::size_t bytes) {
  largest = std::max(largest, bytes);
  if (left == 0) {
    if (shortage.until == never || --shortage.until > 0) return false;
    left = shortage.failures;
    failed = true;
  }
  if (--left == 0) shortage.until = shortage.every;
  return true;
}

std::size_t largest_allocation() { return largest; }

}  // namespace dlaunch::test

// Not inlined: a compiler that sees through one of them alone takes them for no pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (dlaunch::test::allocation_fails(bytes)) throw std::bad_alloc();
  void* place = std::malloc(bytes == 0 ? 1 : bytes);
  if (place == nullptr) throw std::bad_alloc();
  return place;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (dlaunch::test::allocation_fails(bytes)) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* place) noexcept { std::free(place); }
[[gnu::noinline]] void operator delete(void* place, std::size_t) noexcept { std::free(place); }
