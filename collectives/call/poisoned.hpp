#pragma once

#include <dlaunch/tensor.hpp>

#include <algorithm>
#include <cstddef>

/// AddressSanitizer's: the first byte of a region that may not be touched; null: there is none. Not
/// there unless the program is built with it.
extern "C" [[gnu::weak]] void* __asan_region_is_poisoned(void* begin, std::size_t size);

namespace dlaunch {

/// Whether AddressSanitizer knows that memory which a call is given, or still borrows, is not the
/// program's: it was freed, or ends earlier. The kernel and other ranks touch it without asking.
inline bool is_poisoned(const std::byte* begin, std::size_t bytes) noexcept {
  if (__asan_region_is_poisoned == nullptr) [[likely]]
    return false;
  return __asan_region_is_poisoned(const_cast<std::byte*>(begin), bytes) != nullptr;
}

inline bool is_poisoned(const ConstTensorView& view) noexcept {
  if (__asan_region_is_poisoned == nullptr) [[likely]]
    return false;
  if (view.count == 0 || !view.place.is_host()) return false;
  const auto width = static_cast<std::ptrdiff_t>(size_of(view.dtype));
  std::ptrdiff_t last = 0;
  // No program has memory beyond the end of addresses.
  if (__builtin_mul_overflow(view.count - 1, view.stride, &last) ||
      __builtin_mul_overflow(last, width, &last)) {
    return true;
  }
  return is_poisoned(static_cast<const std::byte*>(view.data) + std::min<std::ptrdiff_t>(last, 0),
                     static_cast<std::size_t>(std::max(last, -last) + width));
}

}  // namespace dlaunch
