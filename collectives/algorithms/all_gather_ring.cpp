#include "collectives/algorithms/algorithms.hpp"

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

void all_gather_ring(Mesh& mesh, std::byte* data, const Offsets& parts) {
  const int n = mesh.size(), me = mesh.rank();
  const auto part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(data + parts[r], parts[r + 1] - parts[r]);
  };
  for (int step = 0; step < n - 1; ++step) {
    mesh.exchange((me + 1) % n, part((me - step + n) % n), (me - 1 + n) % n,
                  part((me - step - 1 + 2 * n) % n));
  }
}

}  // namespace dlaunch::algorithms
