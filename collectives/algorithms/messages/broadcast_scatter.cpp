#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/places.hpp"

namespace dlaunch::algorithms {

void broadcast_scatter(Mesh& mesh, std::span<std::byte> data, int root) {
  const Places places(mesh, root);
  const Offsets parts = even_parts(data.size(), places.ranks, 1);
  // The parts of a run of places, which begins at this rank's place in the tree.
  const auto run = [&](int first, int count) {
    const auto from = static_cast<std::size_t>(first);
    const auto to = static_cast<std::size_t>(first + count);
    return data.subspan(parts[from], parts[to] - parts[from]);
  };
  const int subtree = places.subtree(places.mine);
  if (places.mine != 0) {
    mesh.recv(places.rank_at(places.parent(places.mine)), run(places.mine, subtree));
  }
  int bit = 1;
  while (bit < subtree) bit *= 2;
  for (bit /= 2; bit > 0; bit /= 2) {
    const int child = places.mine + bit;
    mesh.send(places.rank_at(child), run(child, places.subtree(child)));
  }
  all_gather_ring(mesh, {data.data(), parts}, root);
}

}  // namespace dlaunch::algorithms
