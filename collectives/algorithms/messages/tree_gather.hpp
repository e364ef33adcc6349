#pragma once

#include "collectives/algorithms/messages/places.hpp"
#include "collectives/algorithms/messages/requests.hpp"

#include <cstring>
#include <memory>

namespace dlaunch::algorithms {

/// Gathers equal pieces up a binomial tree. The root gets those of all ranks, side by side in the
/// order of their places; other ranks get their subtree's pieces, which they pass on.
class TreeGather {
 public:
  TreeGather(Mesh& mesh, BytesView mine, const Places& places) : each_(mine.size()) {
    const int subtree = places.subtree(places.mine);
    held_ = mesh.buffer_pool().take(each_ * static_cast<std::size_t>(subtree));
    if (each_ > 0) std::memcpy(held_.get(), mine.data(), each_);
    Requests requests(mesh);
    for (int bit = 1; bit < subtree; bit *= 2) {
      const int child = places.mine + bit;
      requests.recv(places.rank_at(child), run(bit, places.subtree(child)));
    }
    requests.land();
    if (places.mine == 0) return;
    mesh.send(places.rank_at(places.parent(places.mine)), run(0, subtree));
  }

  const std::byte* at(int place) const {
    return held_.get() + static_cast<std::size_t>(place) * each_;
  }

 private:
  std::span<std::byte> run(int first, int count) {
    return {held_.get() + static_cast<std::size_t>(first) * each_,
            static_cast<std::size_t>(count) * each_};
  }

  std::size_t each_;
  BufferPool::Buffer held_;
};

}  // namespace dlaunch::algorithms
