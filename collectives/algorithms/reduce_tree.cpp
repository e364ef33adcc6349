#include "collectives/algorithms/algorithms.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch::algorithms {

void reduce_tree(Mesh& mesh, BytesView in, std::byte* out, int root, const Folder& fold) {
  const int n = mesh.size();
  const int place = (mesh.rank() - root + n) % n;  // The root is at place 0.
  const auto rank_at = [&](int at) { return (at + root) % n; };
  // The subtree of a place is the run of places that begins with it, up to the next place with a
  // higher lowest bit; its contributions lie side by side.
  const int subtree = place == 0 ? n : std::max(1, std::min(place & -place, n - place));
  const std::size_t each = in.size();
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(each * static_cast<std::size_t>(subtree));
  if (each > 0) std::memcpy(buffer.get(), in.data(), each);
  const auto run = [&](int first, int count) {
    return std::span(buffer.get() + static_cast<std::size_t>(first) * each,
                     static_cast<std::size_t>(count) * each);
  };
  for (int bit = 1; bit < subtree; bit *= 2) {
    const int child = place + bit;
    if (child < n) mesh.recv(rank_at(child), run(bit, std::min(bit, n - child)));
  }
  if (place != 0) return mesh.send(rank_at(place - (place & -place)), run(0, subtree));

  std::vector<const std::byte*> inputs(static_cast<std::size_t>(n));
  for (int at = 0; at < n; ++at) {
    inputs[static_cast<std::size_t>(rank_at(at))] = run(at, 1).data();
  }
  fold(inputs, out, each / fold.element_bytes());
}

}  // namespace dlaunch::algorithms
