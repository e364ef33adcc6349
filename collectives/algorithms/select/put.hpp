#pragma once

#include <cstddef>
#include <cstring>

namespace dlaunch::algorithms {

/// Copies bytes to a place where they may already lie.
inline void put(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace dlaunch::algorithms
