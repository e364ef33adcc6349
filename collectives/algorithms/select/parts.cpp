#include "collectives/algorithms/select/parts.hpp"

namespace dlaunch::algorithms {

Offsets equal_parts(int ranks, std::size_t each) {
  Offsets parts(static_cast<std::size_t>(ranks) + 1);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = i * each;
  return parts;
}

Offsets parts_of(std::span<const std::size_t> counts, std::size_t element_bytes) {
  Offsets parts{0};
  for (const std::size_t count : counts) parts.push_back(parts.back() + count * element_bytes);
  return parts;
}

Offsets even_parts(std::size_t bytes, int ranks, std::size_t element_bytes) {
  const std::size_t count = bytes / element_bytes;
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> counts(n);
  for (std::size_t i = 0; i < n; ++i) counts[i] = count / n + (i < count % n ? 1 : 0);
  return parts_of(counts, element_bytes);
}

}  // namespace dlaunch::algorithms
