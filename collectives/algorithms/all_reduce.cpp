#include "collectives/algorithms/algorithms.hpp"

namespace dlaunch::algorithms {
namespace {

/// Below this the tree's fewer messages win, above it the parts' fewer bytes.
constexpr std::size_t in_parts_bytes_min = 64u << 10;
/// With many ranks a part must still be worth a message.
constexpr std::size_t part_bytes_min = 2u << 10;

/// Whole elements, as equal as can be, the first ones longer.
Offsets even_parts(std::size_t bytes, int ranks, std::size_t element_bytes) {
  const std::size_t count = bytes / element_bytes;
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> counts(n);
  for (std::size_t i = 0; i < n; ++i) counts[i] = count / n + (i < count % n ? 1 : 0);
  return parts_of(counts, element_bytes);
}

}  // namespace

bool reduces_in_parts(std::size_t bytes, int ranks) {
  return bytes >= in_parts_bytes_min && bytes / static_cast<std::size_t>(ranks) >= part_bytes_min;
}

void all_reduce(Mesh& mesh, std::span<std::byte> data, const Folder& fold) {
  if (!reduces_in_parts(data.size(), mesh.size())) {
    reduce_tree(mesh, data, data.data(), 0, fold);
    return broadcast_binomial(mesh, data, 0);
  }
  const Offsets parts = even_parts(data.size(), mesh.size(), fold.element_bytes());
  std::byte* mine = data.data() + parts[static_cast<std::size_t>(mesh.rank())];
  reduce_scatter_pairwise(mesh, data, mine, parts, fold);
  all_gather_ring(mesh, data.data(), parts);
}

void reduce(Mesh& mesh, BytesView in, std::byte* out, int root, const Folder& fold) {
  if (!reduces_in_parts(in.size(), mesh.size())) return reduce_tree(mesh, in, out, root, fold);
  const Offsets parts = even_parts(in.size(), mesh.size(), fold.element_bytes());
  const auto me = static_cast<std::size_t>(mesh.rank());
  const std::size_t size = parts[me + 1] - parts[me];
  const auto mine = std::make_unique_for_overwrite<std::byte[]>(size);
  reduce_scatter_pairwise(mesh, in, mine.get(), parts, fold);
  gather_linear(mesh, {mine.get(), size}, out, parts, root);
}

}  // namespace dlaunch::algorithms
