#pragma once

#include "collectives/transport/message/mesh.hpp"

#include <algorithm>

namespace dlaunch::algorithms {

/// The ranks as a tree sees them: the root is at place 0. In a binomial tree the subtree of a place
/// is the run of places that begins with it, up to the next one with a higher lowest bit.
struct Places {
  Places(const Mesh& mesh, int root_rank)
      : ranks(mesh.size()), root(root_rank), mine((mesh.rank() - root_rank + ranks) % ranks) {}

  int rank_at(int place) const { return (place + root) % ranks; }
  int subtree(int place) const {
    return place == 0 ? ranks : std::min(place & -place, ranks - place);
  }
  int parent(int place) const { return place - (place & -place); }

  int ranks, root, mine;
};

}  // namespace dlaunch::algorithms
