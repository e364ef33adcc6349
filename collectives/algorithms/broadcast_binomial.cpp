#include "collectives/algorithms/algorithms.hpp"

namespace dlaunch::algorithms {

void broadcast_binomial(Mesh& mesh, std::span<std::byte> data, int root) {
  const int n = mesh.size();
  const int place = (mesh.rank() - root + n) % n;  // The root is at place 0.
  const auto rank_at = [&](int at) { return (at + root) % n; };
  int bit = 1;
  while (bit < n && (place & bit) == 0) bit *= 2;
  if (place != 0) mesh.recv(rank_at(place - bit), data);
  for (bit /= 2; bit > 0; bit /= 2) {
    if (place + bit < n) mesh.send(rank_at(place + bit), data);
  }
}

}  // namespace dlaunch::algorithms
