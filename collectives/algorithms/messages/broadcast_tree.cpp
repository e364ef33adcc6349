#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/places.hpp"
#include "collectives/algorithms/messages/requests.hpp"

namespace dlaunch::algorithms {
namespace {

constexpr int radix = 4;

}  // namespace

void broadcast_tree(Mesh& mesh, std::span<std::byte> data, int root) {
  const Places places(mesh, root);
  int unit = 1;
  while (unit < places.ranks && places.mine / unit % radix == 0) unit *= radix;
  if (places.mine != 0) {
    mesh.recv(places.rank_at(places.mine - places.mine / unit % radix * unit), data);
  }
  // The farthest children come first, since they have the most to do.
  Requests requests(mesh);
  for (unit /= radix; unit > 0; unit /= radix) {
    for (int digit = 1; digit < radix; ++digit) {
      const int child = places.mine + digit * unit;
      if (child < places.ranks) requests.send(places.rank_at(child), data);
    }
  }
  requests.land();
}

}  // namespace dlaunch::algorithms
