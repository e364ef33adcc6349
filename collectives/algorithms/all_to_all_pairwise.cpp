#include "collectives/algorithms/algorithms.hpp"

#include <cstring>

namespace dlaunch::algorithms {

void all_to_all_pairwise(Mesh& mesh, const std::byte* in, const Offsets& in_parts, std::byte* out,
                         const Offsets& out_parts) {
  const int n = mesh.size(), me = mesh.rank();
  const auto outgoing = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return BytesView(in + in_parts[r], in_parts[r + 1] - in_parts[r]);
  };
  const auto incoming = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(out + out_parts[r], out_parts[r + 1] - out_parts[r]);
  };
  const BytesView own = outgoing(me);
  if (!own.empty()) std::memcpy(incoming(me).data(), own.data(), own.size());
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    mesh.exchange(to, outgoing(to), from, incoming(from));
  }
}

}  // namespace dlaunch::algorithms
