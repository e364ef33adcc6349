#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/places.hpp"
#include "collectives/algorithms/messages/requests.hpp"
#include "collectives/algorithms/messages/tree_gather.hpp"
#include "collectives/algorithms/select/put.hpp"

namespace dlaunch::algorithms {

void gather_direct(Mesh& mesh, BytesView mine, const RankParts& all, int root) {
  if (mesh.rank() != root) return mesh.send(root, mine);
  Requests requests(mesh);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank == root) {
      put(all.begin(rank), mine.data(), mine.size());
    } else {
      requests.recv(rank, all[rank]);
    }
  }
  requests.land();
}

void scatter_direct(Mesh& mesh, const ConstRankParts& all, std::span<std::byte> mine, int root) {
  if (mesh.rank() != root) return mesh.recv(root, mine);
  Requests requests(mesh);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank == root) {
      put(mine.data(), all.begin(rank), mine.size());
    } else {
      requests.send(rank, all[rank]);
    }
  }
  requests.land();
}

void gather_tree(Mesh& mesh, BytesView mine, std::byte* all, int root) {
  const Places places(mesh, root);
  const TreeGather gathered(mesh, mine, places);
  if (mesh.rank() != root) return;
  for (int place = 0; place < places.ranks; ++place) {
    put(all + static_cast<std::size_t>(places.rank_at(place)) * mine.size(), gathered.at(place),
        mine.size());
  }
}

void scatter_tree(Mesh& mesh, const std::byte* all, std::span<std::byte> mine, int root) {
  const Places places(mesh, root);
  const std::size_t each = mine.size();
  const int subtree = places.subtree(places.mine);
  std::vector<std::byte> held(static_cast<std::size_t>(subtree) * each);
  const auto run = [&](int first, int count) {
    return std::span(held).subspan(static_cast<std::size_t>(first) * each,
                                   static_cast<std::size_t>(count) * each);
  };
  if (places.mine != 0) {
    mesh.recv(places.rank_at(places.parent(places.mine)), held);
  } else {
    for (int place = 0; place < places.ranks; ++place) {
      put(run(place, 1).data(), all + static_cast<std::size_t>(places.rank_at(place)) * each, each);
    }
  }
  int bit = 1;
  while (bit < subtree) bit *= 2;
  Requests requests(mesh);
  for (bit /= 2; bit > 0; bit /= 2) {
    const int child = places.mine + bit;
    requests.send(places.rank_at(child), run(bit, places.subtree(child)));
  }
  put(mine.data(), held.data(), each);
  requests.land();
}

}  // namespace dlaunch::algorithms
