#pragma once

#include <cstddef>
#include <cstring>

namespace dlaunch::algorithms {

/// Bytes to their place, in which they may lie already.
inline void put(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace dlaunch::algorithms
