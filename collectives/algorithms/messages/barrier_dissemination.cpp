#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/requests.hpp"

#include <utility>
#include <vector>

namespace dlaunch::algorithms {
namespace {

/// Messages in a round, plus one; more would cost the sender more than it saves rounds.
constexpr int radix = 8;

}  // namespace

void barrier_dissemination(Mesh& mesh) {
  const int n = mesh.size(), me = mesh.rank();
  Requests requests(mesh);
  for (int unit = 1; unit < n; unit *= radix) {
    if (2 * unit >= n) {  // A single other rank needs no round of several.
      mesh.exchange((me - unit + n) % n, {}, (me + unit) % n, {});
      continue;
    }
    for (int distance = unit; distance < n && distance < radix * unit; distance += unit) {
      // The same direction as in Bruck's algorithm, so that both share connections.
      requests.recv((me + distance) % n, {});
      requests.send((me - distance + n) % n, {});
    }
    requests.land();
  }
}

void tell_by_dissemination(Mesh& mesh, BytesView mine,
                           const std::function<void(int from, BytesView theirs)>& heard) {
  const int n = mesh.size(), me = mesh.rank();
  std::vector<std::byte> all(static_cast<std::size_t>(radix - 1) * mine.size());
  for (int unit = 1; unit < n; unit *= radix) {
    std::vector<std::pair<int, BytesView>> heard_from;
    Requests requests(mesh);
    for (int distance = unit; distance < n && distance < radix * unit; distance += unit) {
      const auto theirs = std::span(all).subspan(heard_from.size() * mine.size(), mine.size());
      heard_from.emplace_back((me + distance) % n, theirs);
      requests.recv((me + distance) % n, theirs);
      requests.send((me - distance + n) % n, mine);
    }
    requests.land();
    for (const auto& [from, theirs] : heard_from) heard(from, theirs);
  }
}

}  // namespace dlaunch::algorithms
