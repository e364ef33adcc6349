#include "collectives/algorithms/messages/messages.hpp"

#include <cstring>

namespace dlaunch::algorithms {

void all_reduce_bruck(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer) {
  const int n = mesh.size();
  const Offsets parts(n, data.size());
  const auto all = mesh.buffer_pool().take(parts.back());
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < n; ++rank) {
    inputs.push_back(all.get() + parts[static_cast<std::size_t>(rank)]);
  }
  std::byte* mine = all.get() + parts[static_cast<std::size_t>(mesh.rank())];
  if (!data.empty()) std::memcpy(mine, data.data(), data.size());
  all_gather_bruck(mesh, {all.get(), parts});
  reducer(inputs, data.data(), data.size() / reducer.element_bytes());
}

}  // namespace dlaunch::algorithms
