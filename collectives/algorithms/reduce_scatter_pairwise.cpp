#include "collectives/algorithms/algorithms.hpp"

#include <algorithm>

namespace dlaunch::algorithms {
namespace {

/// Bounds the memory a call needs beside its buffers to this, times the number of ranks. A multiple
/// of every element's size.
constexpr std::size_t piece_bytes = 1u << 20;

}  // namespace

void reduce_scatter_pairwise(Mesh& mesh, BytesView in, std::byte* out, const Offsets& parts,
                             const Folder& fold) {
  const int n = mesh.size(), me = mesh.rank();
  const std::size_t ranks = parts.size() - 1;
  const auto size_of_part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return parts[r + 1] - parts[r];
  };
  std::size_t longest = 0;
  for (int rank = 0; rank < n; ++rank) longest = std::max(longest, size_of_part(rank));

  const std::size_t room = std::min(size_of_part(me), piece_bytes);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(room * ranks);
  std::vector<const std::byte*> inputs(ranks);
  // Once even if all parts are empty, so that the ranks compare their calls.
  for (std::size_t begin = 0; begin == 0 || begin < longest; begin += piece_bytes) {
    const auto piece = [&](int rank) {
      const std::size_t size = size_of_part(rank);
      const std::size_t from = std::min(begin, size);
      return in.subspan(parts[static_cast<std::size_t>(rank)] + from,
                        std::min(piece_bytes, size - from));
    };
    const BytesView mine = piece(me);
    for (int distance = 1; distance < n; ++distance) {
      const int to = (me + distance) % n, from = (me - distance + n) % n;
      std::byte* into = scratch.get() + static_cast<std::size_t>(from) * room;
      mesh.exchange(to, piece(to), from, {into, mine.size()});
      inputs[static_cast<std::size_t>(from)] = into;
    }
    inputs[static_cast<std::size_t>(me)] = mine.data();
    fold(inputs, out + std::min(begin, size_of_part(me)), mine.size() / fold.element_bytes());
  }
}

}  // namespace dlaunch::algorithms
