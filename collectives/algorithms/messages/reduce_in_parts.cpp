#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/requests.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::algorithms {
namespace {

/// Chunks of a part: large enough for a link, small enough that one is reduced out of the cache
/// while the next arrives.
constexpr std::size_t chunk_bytes_max = 256u << 10;
constexpr std::size_t chunk_bytes_min = 16u << 10;
/// The most memory for arriving chunks, beside the call's buffers.
constexpr std::size_t scratch_bytes_max = 16u << 20;

/// Every rank's data for a part goes to the part's owner, chunk by chunk. While chunk k + 1 is on
/// its way, chunk k is reduced and, if the others want it, sent to them.
class InParts {
 public:
  /// `out` is where this rank's own part goes.
  InParts(Mesh& mesh, const ConstRankParts& in, std::byte* out, const Reducer& reducer)
      : mesh_(mesh),
        n_(mesh.size()),
        me_(mesh.rank()),
        in_(in),
        out_(out),
        fold_(reducer),
        inputs_(static_cast<std::size_t>(n_)) {
    const auto others = static_cast<std::size_t>(std::max(n_ - 1, 1));
    chunk_ = reducer.whole(
        std::clamp(scratch_bytes_max / 2 / others / 64 * 64, chunk_bytes_min, chunk_bytes_max));
    // There is one chunk even if all parts are empty, so that the ranks compare their calls.
    chunks_ = std::max<std::size_t>((in.offsets().longest() + chunk_ - 1) / chunk_, 1);
    room_ = n_ == 1 ? 0 : std::min(in.size(me_), chunk_);
    scratch_ = mesh.buffer_pool().take(2 * others * room_);
  }

  /// `shared`: the places of all ranks' results, if every rank gets them; it may be `in`.
  void run(const RankParts* shared) {
    for (std::size_t k = 0; k <= chunks_; ++k) {
      if (k < chunks_) start(k);
      if (k == 0) continue;
      arrivals_[(k - 1) % 2].land();
      fold_chunk(k - 1);
      // A result may be received where this rank's own data was.
      departures_[(k - 1) % 2].land();
      if (shared == nullptr) continue;
      results_.at(k % 2).land();
      share(k - 1, *shared, results_.at(k % 2));
    }
    for (Requests& each : results_) each.land();
  }

 private:
  /// A part's bytes before the chunk.
  std::size_t before(int rank, std::size_t k) const { return std::min(k * chunk_, in_.size(rank)); }
  std::size_t size(int rank, std::size_t k) const {
    return std::min(chunk_, in_.size(rank) - before(rank, k));
  }
  std::byte* place(int distance, std::size_t k) const {
    const auto other = static_cast<std::size_t>(distance - 1);
    return scratch_.get() + (2 * other + k % 2) * room_;
  }

  void start(std::size_t k) {
    for (int distance = 1; distance < n_; ++distance) {
      const int to = (me_ + distance) % n_, from = (me_ - distance + n_) % n_;
      arrivals_[k % 2].recv(from, {place(distance, k), size(me_, k)});
      departures_[k % 2].send(to, {in_.begin(to) + before(to, k), size(to, k)});
    }
  }

  void fold_chunk(std::size_t k) {
    for (int distance = 1; distance < n_; ++distance) {
      inputs_[static_cast<std::size_t>((me_ - distance + n_) % n_)] = place(distance, k);
    }
    inputs_[static_cast<std::size_t>(me_)] = in_.begin(me_) + before(me_, k);
    fold_(inputs_, out_ + before(me_, k), size(me_, k) / fold_.element_bytes());
  }

  void share(std::size_t k, const RankParts& shared, Requests& requests) {
    for (int distance = 1; distance < n_; ++distance) {
      const int to = (me_ + distance) % n_, from = (me_ - distance + n_) % n_;
      requests.recv(from, {shared.begin(from) + before(from, k), size(from, k)});
      requests.send(to, {shared.begin(me_) + before(me_, k), size(me_, k)});
    }
  }

  Mesh& mesh_;
  const int n_, me_;
  const ConstRankParts in_;
  std::byte* const out_;
  const Reducer& fold_;
  std::vector<const std::byte*> inputs_;
  std::size_t chunk_ = 0, chunks_ = 0, room_ = 0;
  BufferPool::Buffer scratch_;
  std::array<Requests, 2> arrivals_{Requests(mesh_), Requests(mesh_)};
  std::array<Requests, 2> departures_{Requests(mesh_), Requests(mesh_)};
  std::array<Requests, 2> results_{Requests(mesh_), Requests(mesh_)};
};

}  // namespace

void reduce_scatter_in_parts(Mesh& mesh, const ConstRankParts& in, std::byte* out,
                             const Reducer& reducer) {
  InParts(mesh, in, out, reducer).run(nullptr);
}

void all_reduce_in_parts(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer) {
  const Offsets parts = even_parts(data.size(), mesh.size(), reducer.element_bytes());
  const RankParts shared(data.data(), parts);
  InParts(mesh, {data.data(), parts}, shared.begin(mesh.rank()), reducer).run(&shared);
}

void reduce_in_parts(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  const Offsets parts = even_parts(in.size(), mesh.size(), reducer.element_bytes());
  const std::size_t size = size_of_part(parts, mesh.rank());
  const auto mine = mesh.buffer_pool().take(size);
  reduce_scatter_in_parts(mesh, {in.data(), parts}, mine.get(), reducer);
  gather_direct(mesh, {mine.get(), size}, {out, parts}, root);
}

void all_reduce_exchange(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer) {
  const int other = 1 - mesh.rank();
  const std::size_t most = reducer.whole(chunk_bytes_max);
  const std::size_t chunks = std::max<std::size_t>((data.size() + most - 1) / most, 1);
  const std::size_t room = std::min(data.size(), most);
  const auto scratch = mesh.buffer_pool().take(std::min<std::size_t>(chunks, 2) * room);
  const auto chunk = [&](std::size_t k) {
    const std::size_t begin = k * most;
    return data.subspan(begin, std::min(most, data.size() - begin));
  };
  const auto fold_chunk = [&](std::size_t k) {
    const std::byte* mine = chunk(k).data();
    const std::byte* theirs = scratch.get() + k % 2 * room;
    const std::array<const std::byte*, 2> inputs{mesh.rank() == 0 ? mine : theirs,
                                                 mesh.rank() == 0 ? theirs : mine};
    reducer(inputs, chunk(k).data(), chunk(k).size() / reducer.element_bytes());
  };
  if (chunks == 1) {
    mesh.exchange(other, data, other, {scratch.get(), data.size()});
    return fold_chunk(0);
  }
  std::array<Requests, 2> requests{Requests(mesh), Requests(mesh)};
  for (std::size_t k = 0; k <= chunks; ++k) {
    if (k < chunks) {
      requests.at(k % 2).recv(other, {scratch.get() + k % 2 * room, chunk(k).size()});
      requests.at(k % 2).send(other, chunk(k));
    }
    if (k == 0) continue;
    requests.at((k - 1) % 2).land();
    fold_chunk(k - 1);
  }
}

}  // namespace dlaunch::algorithms
