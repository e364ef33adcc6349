#include "collectives/algorithms/algorithms.hpp"

#include <cstring>

namespace dlaunch::algorithms {
namespace {

void copy(std::byte* to, BytesView from) {
  if (!from.empty() && to != from.data()) std::memmove(to, from.data(), from.size());
}

}  // namespace

void gather_linear(Mesh& mesh, BytesView mine, std::byte* all, const Offsets& parts, int root) {
  if (mesh.rank() != root) return mesh.send(root, mine);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto part = std::span(all + parts[r], parts[r + 1] - parts[r]);
    if (rank == root) {
      copy(part.data(), mine);
    } else {
      mesh.recv(rank, part);
    }
  }
}

void scatter_linear(Mesh& mesh, const std::byte* all, std::span<std::byte> mine,
                    const Offsets& parts, int root) {
  if (mesh.rank() != root) return mesh.recv(root, mine);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto part = BytesView(all + parts[r], parts[r + 1] - parts[r]);
    if (rank == root) {
      copy(mine.data(), part);
    } else {
      mesh.send(rank, part);
    }
  }
}

}  // namespace dlaunch::algorithms
