#include "collectives/algorithms/algorithms.hpp"

namespace dlaunch::algorithms {

void barrier_dissemination(Mesh& mesh) {
  const int n = mesh.size(), me = mesh.rank();
  for (int distance = 1; distance < n; distance *= 2) {
    mesh.exchange((me + distance) % n, {}, (me - distance + n) % n, {});
  }
}

}  // namespace dlaunch::algorithms
