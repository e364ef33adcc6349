#include "collectives/algorithms/select/parts.hpp"

#include "collectives/algorithms/select/put.hpp"

#include <algorithm>

namespace dlaunch::algorithms {

std::size_t Offsets::find_longest() const {
  std::size_t longest = 0;
  for (std::size_t i = 1; i < ends_.size(); ++i)
    longest = std::max(longest, ends_[i] - ends_[i - 1]);
  return longest;
}

void copy_parts(const ConstRankParts& parts, std::byte* to) {
  if (parts.are_together()) return put(to, parts.begin(0), parts.bytes());
  for (std::size_t i = 0; i < parts.offsets().count(); ++i) {
    const auto part = parts[static_cast<int>(i)];
    put(to + parts.offsets()[i], part.data(), part.size());
  }
}

Offsets parts_of(std::span<const std::size_t> counts, std::size_t element_bytes) {
  Offsets parts;
  for (const std::size_t count : counts) parts.add(count * element_bytes);
  return parts;
}

Offsets even_parts(std::size_t bytes, int ranks, std::size_t element_bytes) {
  const std::size_t count = bytes / element_bytes;
  const auto n = static_cast<std::size_t>(ranks);
  Offsets parts;
  for (std::size_t i = 0; i < n; ++i) {
    parts.add((count / n + (i < count % n ? 1 : 0)) * element_bytes);
  }
  return parts;
}

}  // namespace dlaunch::algorithms
