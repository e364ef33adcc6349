#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/tree_gather.hpp"

namespace dlaunch::algorithms {

void reduce_tree(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  const Places places(mesh, root);
  const TreeGather gathered(mesh, in, places);
  if (mesh.rank() != root) return;
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(places.ranks));
  for (int place = 0; place < places.ranks; ++place) {
    inputs[static_cast<std::size_t>(places.rank_at(place))] = gathered.at(place);
  }
  reducer(inputs, out, in.size() / reducer.element_bytes());
}

}  // namespace dlaunch::algorithms
