#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/flights.hpp"

namespace dlaunch::algorithms {
namespace {

/// More messages in a round cost the sender more than a round less saves.
constexpr int radix = 8;

}  // namespace

void barrier_dissemination(Mesh& mesh) {
  const int n = mesh.size(), me = mesh.rank();
  Flights flights(mesh);
  for (int unit = 1; unit < n; unit *= radix) {
    if (2 * unit >= n) {  // One other only, who may be had sooner by itself.
      mesh.exchange((me - unit + n) % n, {}, (me + unit) % n, {});
      continue;
    }
    for (int distance = unit; distance < n && distance < radix * unit; distance += unit) {
      // The way in which Bruck's algorithm sends, too: they share connections.
      flights.recv((me + distance) % n, {});
      flights.send((me - distance + n) % n, {});
    }
    flights.land();
  }
}

}  // namespace dlaunch::algorithms
