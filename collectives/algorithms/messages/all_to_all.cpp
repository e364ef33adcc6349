#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/requests.hpp"
#include "collectives/algorithms/select/put.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace dlaunch::algorithms {
namespace {

/// The most pairs of messages under way at once. Ranks need not agree on it.
constexpr std::size_t flights_max = 8;

}  // namespace

void all_to_all_direct(Mesh& mesh, const ConstRankParts& in, const RankParts& out) {
  const int n = mesh.size(), me = mesh.rank();
  put(out.begin(me), in.begin(me), in.size(me));
  std::vector<Requests> requests;
  for (std::size_t i = 0; i < flights_max; ++i) requests.emplace_back(mesh);
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    Requests& turn = requests[static_cast<std::size_t>(distance) % flights_max];
    turn.land();
    turn.recv(from, out[from]);
    turn.send(to, in[to]);
  }
  for (Requests& turn : requests) turn.land();
}

void all_to_all_bruck(Mesh& mesh, const std::byte* in, std::byte* out, std::size_t each) {
  const int n = mesh.size(), me = mesh.rank();
  const auto ranks = static_cast<std::size_t>(n);
  const auto copy = [&](std::byte* to, const std::byte* from) {
    if (each > 0) std::memcpy(to, from, each);
  };
  // held[i] is the data for the rank i further; it is replaced by the data from the rank i before.
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
