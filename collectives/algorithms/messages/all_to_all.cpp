#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/requests.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace dlaunch::algorithms {
namespace {

/// Pairs of messages under way at once. Ranks need not agree on it.
constexpr std::size_t flights_max = 8;

}  // namespace

void all_to_all_direct(Mesh& mesh, const std::byte* in, const Offsets& in_parts, std::byte* out,
                       const Offsets& out_parts) {
  const int n = mesh.size(), me = mesh.rank();
  const auto outgoing = [&](int rank) {
    return BytesView(in + in_parts[static_cast<std::size_t>(rank)], size_of_part(in_parts, rank));
  };
  const auto incoming = [&](int rank) {
    return std::span(out + out_parts[static_cast<std::size_t>(rank)],
                     size_of_part(out_parts, rank));
  };
  const BytesView own = outgoing(me);
  if (!own.empty()) std::memcpy(incoming(me).data(), own.data(), own.size());
  std::vector<Requests> requests;
  for (std::size_t i = 0; i < flights_max; ++i) requests.emplace_back(mesh);
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    Requests& turn = requests[static_cast<std::size_t>(distance) % flights_max];
    turn.land();
    turn.recv(from, incoming(from));
    turn.send(to, outgoing(to));
  }
  for (Requests& turn : requests) turn.land();
}

void all_to_all_bruck(Mesh& mesh, const std::byte* in, std::byte* out, std::size_t each) {
  const int n = mesh.size(), me = mesh.rank();
  const auto ranks = static_cast<std::size_t>(n);
  const auto copy = [&](std::byte* to, const std::byte* from) {
    if (each > 0) std::memcpy(to, from, each);
  };
  // held[i] is on its way to the rank i further; what came back from a rank i before takes its
  // place.
  std::vector<std::byte> held(ranks * each), outgoing(held.size()), incoming(held.size());
  const auto at = [&](std::vector<std::byte>& bytes, int i) {
    return bytes.data() + static_cast<std::size_t>(i) * each;
  };
  for (int i = 0; i < n; ++i) {
    copy(at(held, i), in + static_cast<std::size_t>((me + i) % n) * each);
  }
  for (int bit = 1; bit < n; bit *= 2) {
    int moving = 0;
    for (int i = 0; i < n; ++i) {
      if ((i & bit) != 0) copy(at(outgoing, moving++), at(held, i));
    }
    const std::size_t size = static_cast<std::size_t>(moving) * each;
    mesh.exchange((me + bit) % n, BytesView(outgoing).first(size), (me - bit + n) % n,
                  std::span(incoming).first(size));
    moving = 0;
    for (int i = 0; i < n; ++i) {
      if ((i & bit) != 0) copy(at(held, i), at(incoming, moving++));
    }
  }
  for (int i = 0; i < n; ++i) {
    copy(out + static_cast<std::size_t>((me - i + n) % n) * each, at(held, i));
  }
}

}  // namespace dlaunch::algorithms
