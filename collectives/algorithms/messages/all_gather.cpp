#include "collectives/algorithms/messages/messages.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch::algorithms {

void all_gather_ring(Mesh& mesh, const RankParts& data, int first) {
  const int n = mesh.size(), me = mesh.rank();
  const auto part = [&](int rank) { return data[(rank - first + 2 * n) % n]; };
  for (int step = 0; step < n - 1; ++step) {
    mesh.exchange((me + 1) % n, part((me - step + n) % n), (me - 1 + n) % n,
                  part((me - step - 1 + 2 * n) % n));
  }
}

void all_gather_bruck(Mesh& mesh, const RankParts& data) {
  const int n = mesh.size(), me = mesh.rank();
  // This rank holds its own part, then that of the next rank, and so on.
  Offsets held;
  for (int i = 0; i < n; ++i) held.add(data.size((me + i) % n));
  const auto room = mesh.buffer_pool().take(held.back());
  const auto run = [&](int first, int count) {
    const auto from = static_cast<std::size_t>(first);
    const auto to = static_cast<std::size_t>(first + count);
    return std::span(room.get() + held[from], held[to] - held[from]);
  };
  const auto place = [&](int i) { return data.begin((me + i) % n); };
  if (!run(0, 1).empty()) std::memcpy(room.get(), place(0), run(0, 1).size());
  for (int have = 1; have < n; have *= 2) {
    const int more = std::min(have, n - have);
    mesh.exchange((me - have + n) % n, run(0, more), (me + have) % n, run(have, more));
  }
  for (int i = 1; i < n; ++i) {
    if (!run(i, 1).empty()) std::memcpy(place(i), run(i, 1).data(), run(i, 1).size());
  }
}

}  // namespace dlaunch::algorithms
