#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch::algorithms {

/// The n + 1 offsets at which the ranks' parts begin and end.
using Offsets = std::vector<std::size_t>;
Offsets equal_parts(int ranks, std::size_t each);
Offsets parts_of(std::span<const std::size_t> counts, std::size_t element_bytes);
/// Whole elements, as equal as can be, the first ones longer.
Offsets even_parts(std::size_t bytes, int ranks, std::size_t element_bytes);
inline std::size_t size_of_part(const Offsets& parts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return parts[r + 1] - parts[r];
}

}  // namespace dlaunch::algorithms
