#include "collectives/algorithms/by_node.hpp"
#include "collectives/algorithms/messages/requests.hpp"
#include "collectives/algorithms/messages/submesh.hpp"
#include "collectives/algorithms/shared/shared.hpp"
#include "collectives/reduce/partial_reducer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

namespace dlaunch::algorithms::by_node {
namespace {

/// The piece that one rank of a node reduces in a step: large enough for a message, and so small
/// that a whole step stays in the cache.
constexpr std::size_t piece_bytes_max = 128u << 10;

/// The size of a piece in whole elements. It is the same on all nodes, so that their pieces match
/// ours.
std::size_t piece_bytes(const Layout& layout, const Reducer& reducer) {
  const std::size_t room = ShmGroup::slot_bytes / static_cast<std::size_t>(layout.most());
  return reducer.whole(std::min(room, piece_bytes_max) / 64 * 64);
}

/// A part of the data for each member of an shm group: as many as the smallest node has ranks, and
/// nothing for the others.
Offsets slices_of(const Nodes& nodes, std::size_t bytes, std::size_t element_bytes) {
  Offsets parts = even_parts(bytes, nodes.layout().fewest(), element_bytes);
  while (parts.count() < nodes.layout().members(nodes.node()).size()) parts.add(0);
  return parts;
}

/// Reductions of a node's ranks: in a step each member reduces a piece out of the data of all of
/// them. A rank alone on its node reduces its own.
class NodeFold {
 public:
  NodeFold(const Nodes& nodes, BytesView in, const Reducer& reducer, PartialReducer& partials)
      : shm_(nodes.shm()),
        index_(nodes.index()),
        in_(in),
        element_bytes_(reducer.element_bytes()),
        room_(piece_bytes(nodes.layout(), reducer)),
        partials_(partials),
        inputs_(nodes.layout().members(nodes.node()).size()) {}

  /// Turns to the window of each part that begins at `offset`.
  void turn_to(const Offsets& parts, std::size_t offset) { mine_ = window(parts, index_, offset); }
  /// Gives the others their shares of it; until the next call all can reduce.
  void give(const Offsets& parts, std::size_t offset) {
    inputs_[static_cast<std::size_t>(index_)] = in_.data() + mine_.begin;
    if (shm_ == nullptr) return;
    shm_->open();
    for (int member = 0; member < shm_->size(); ++member) {
      const Window theirs = window(parts, member, offset);
      if (member == index_ || theirs.bytes == 0) continue;
      std::memcpy(shm_->slot() + static_cast<std::size_t>(member) * room_,
                  in_.data() + theirs.begin, theirs.bytes);
    }
    shm_->publish();
    for (int member = 0; member < shm_->size(); ++member) {
      if (member == index_) continue;
      shm_->wait(member);
      inputs_[static_cast<std::size_t>(member)] =
          shm_->slot_of(member) + static_cast<std::size_t>(index_) * room_;
    }
  }
  /// Elements of this rank's piece.
  std::size_t count() const { return mine_.bytes / element_bytes_; }
  /// Reduces onto `before`, which may be null.
  void fold(const std::byte* before, std::byte* out) {
    partials_.extend(before, inputs_, out, count());
  }

 private:
  struct Window {
    std::size_t begin, bytes;
  };
  Window window(const Offsets& parts, int member, std::size_t offset) const {
    const std::size_t size = size_of_part(parts, member);
    const std::size_t skipped = std::min(offset, size);
    return {parts[static_cast<std::size_t>(member)] + skipped, std::min(room_, size - skipped)};
  }

  ShmGroup* shm_;
  const int index_;
  const BytesView in_;
  const std::size_t element_bytes_, room_;
  PartialReducer& partials_;
  std::vector<const std::byte*> inputs_;
  Window mine_{};
};

/// Pieces go from node to node, each of which reduces its ranks' data onto what it gets; the last
/// one has the result, which goes back the same way, or to one node alone. All ranks at one place
/// of their nodes are a chain of their own.
class Chain {
 public:
  static constexpr int to_all = -1;

  Chain(Mesh& mesh, const Nodes& nodes, BytesView in, const Reducer& reducer)
      : peers_(mesh, nodes.peers(), nodes.node()),
        node_(nodes.node()),
        last_(nodes.layout().nodes() - 1),
        ranks_(mesh.size()),
        takes_part_(nodes.index() < nodes.layout().fewest()),
        element_bytes_(reducer.element_bytes()),
        partials_(reducer),
        folds_(nodes, in, reducer, partials_) {
    const std::size_t room =
        piece_bytes(nodes.layout(), reducer) / element_bytes_ * partials_.element_bytes();
    if (!takes_part_) return;
    for (Turn& turn : turns_) turn.before = mesh.buffer_pool().take(node_ > 0 ? room : 0);
    for (Turn& turn : turns_) turn.after = mesh.buffer_pool().take(room);
  }

  /// Reduces the windows of all parts that begin at `offset`; the result goes to node `to`, where a
  /// rank wants its own at `result`, or to all. The same calls in the same order on all ranks.
  void pass(const Offsets& parts, std::size_t offset, int to, std::byte* result) {
    folds_.turn_to(parts, offset);
    if (!takes_part_) return folds_.give(parts, offset);
    Turn& turn = turns_[passed_ % turns_.size()];
    const std::size_t bytes = folds_.count() * partials_.element_bytes();
    if (node_ > 0) turn.arrival.recv(node_ - 1, {turn.before.get(), bytes});
    folds_.give(parts, offset);
    turn.departure.land();
    turn.arrival.land();
    folds_.fold(node_ > 0 ? turn.before.get() : nullptr, turn.after.get());
    const bool wanted = to == to_all || to == node_;
    if (node_ < last_) {
      turn.departure.send(node_ + 1, {turn.after.get(), bytes});
      if (wanted) expect(to, {result, folds_.count() * element_bytes_});
    } else {
      std::byte* place = wanted ? result : turn.after.get();
      partials_.finish(turn.after.get(), place, folds_.count(), ranks_);
      const BytesView done(place, folds_.count() * element_bytes_);
      if (to == to_all && last_ > 0) turn.departure.send(last_ - 1, done);
      if (to != to_all && !wanted) turn.departure.send(to, done);
    }
    ++passed_;
    hand_on(lag());
  }
  /// All results are in their places.
  void finish() {
    hand_on(0);
    for (Turn& turn : turns_) turn.departure.land();
    for (Requests& each : handed_on_) each.land();
  }

 private:
  /// The state of one piece; so many are under way at a time that both directions stay busy.
  struct Turn {
    explicit Turn(Mesh& mesh) : arrival(mesh), departure(mesh) {}
    BufferPool::Buffer before, after;
    Requests arrival, departure;
  };
  struct Result {
    std::span<std::byte> data;
    Requests arrival;
    bool goes_on;
  };

  /// How many results are expected to be under way: they travel to the end of the chain and back.
  std::size_t lag() const { return 2 * static_cast<std::size_t>(last_ - node_); }

  void expect(int to, std::span<std::byte> data) {
    results_.push_back({data, Requests(peers_), to == to_all && node_ > 0});
    results_.back().arrival.recv(to == to_all ? node_ + 1 : last_, data);
  }
  void hand_on(std::size_t left) {
    for (; results_.size() > left; results_.pop_front()) {
      Result& result = results_.front();
      result.arrival.land();
      if (!result.goes_on) continue;
      Requests& departure = handed_on_[landed_++ % handed_on_.size()];
      departure.land();
      departure.send(node_ - 1, result.data);
    }
  }

  Submesh peers_;
  const int node_, last_, ranks_;
  const bool takes_part_;
  const std::size_t element_bytes_;
  PartialReducer partials_;
  NodeFold folds_;
  std::size_t passed_ = 0, landed_ = 0;
  std::array<Turn, 4> turns_{Turn(peers_), Turn(peers_), Turn(peers_), Turn(peers_)};
  std::deque<Result> results_;
  std::array<Requests, 4> handed_on_{Requests(peers_), Requests(peers_), Requests(peers_),
                                     Requests(peers_)};
};

/// At least once, so that the ranks compare their calls.
template <class Pass>
void for_each_window(std::size_t bytes, std::size_t window, const Pass& pass) {
  std::size_t offset = 0;
  do {
    pass(offset);
    offset += window;
  } while (offset < bytes);
}

/// Reduces to node `to`, or to all; each rank wants its slice's result at `mine`.
void fold_in_chain(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* mine, int to,
                   const Offsets& parts, const Reducer& reducer) {
  Chain chain(mesh, nodes, in, reducer);
  for_each_window(parts.longest(), piece_bytes(nodes.layout(), reducer),
                  [&](std::size_t offset) { chain.pass(parts, offset, to, mine + offset); });
  chain.finish();
}

/// The node reduces this rank's slice, if it has one, to a partial.
void fold_here(const Nodes& nodes, BytesView in, std::byte* out, const Offsets& parts,
               const Reducer& reducer, PartialReducer& partials) {
  NodeFold folds(nodes, in, reducer, partials);
  for_each_window(parts.longest(), piece_bytes(nodes.layout(), reducer), [&](std::size_t offset) {
    folds.turn_to(parts, offset);
    folds.give(parts, offset);
    folds.fold(nullptr, out);
    out += folds.count() * partials.element_bytes();
  });
}

/// Collects the slices of the root's node at the root.
void gather_slices(const Nodes& nodes, BytesView mine, std::byte* out, const Offsets& parts,
                   int root) {
  if (nodes.node() != nodes.layout().node_of(root) || nodes.shm() == nullptr) return;
  shared::gather(*nodes.shm(), mine, {out, parts}, nodes.layout().index_of(root),
                 shared::Parts::differing);
}

/// The place where a reduce makes the result of this rank's slice: the final place, if only one
/// rank makes results.
std::byte* place_of_slice(const Mesh& mesh, const Nodes& nodes, const BufferPool::Buffer& room,
                          std::byte* out, int root) {
  return nodes.shm() == nullptr && mesh.rank() == root ? out : room.get();
}

}  // namespace

void all_reduce_in_chain(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                         const Reducer& reducer) {
  const Offsets parts = slices_of(nodes, data.size(), reducer.element_bytes());
  std::byte* mine = data.data() + parts[static_cast<std::size_t>(nodes.index())];
  fold_in_chain(mesh, nodes, data, mine, Chain::to_all, parts, reducer);
  if (nodes.shm() != nullptr) shared::all_gather(*nodes.shm(), {data.data(), parts});
}

void reduce_in_chain(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                     const Reducer& reducer) {
  const Offsets parts = slices_of(nodes, in.size(), reducer.element_bytes());
  const std::size_t size = size_of_part(parts, nodes.index());
  const auto room = mesh.buffer_pool().take(size);
  std::byte* mine = place_of_slice(mesh, nodes, room, out, root);
  fold_in_chain(mesh, nodes, in, mine, nodes.layout().node_of(root), parts, reducer);
  gather_slices(nodes, {mine, size}, out, parts, root);
}

void reduce_scatter_in_chain(Mesh& mesh, const Nodes& nodes, const ConstRankParts& in,
                             std::byte* out, const Reducer& reducer) {
  const Layout& layout = nodes.layout();
  const std::size_t each = in.offsets().longest();
  const auto room = mesh.buffer_pool().take(in.are_together() ? 0 : in.bytes());
  if (!in.are_together()) copy_parts(in, room.get());
  const std::byte* const all = in.are_together() ? in.begin(0) : room.get();
  Chain chain(mesh, nodes, {all, in.bytes()}, reducer);
  for_each_window(each, piece_bytes(layout, reducer), [&](std::size_t offset) {
    for (int node = 0; node < layout.nodes(); ++node) {
      const std::size_t first = static_cast<std::size_t>(layout.rank_at(node, 0)) * each;
      chain.pass(Offsets(layout.most(), each, first), offset, node, out + offset);
    }
  });
  chain.finish();
}

void all_reduce_in_slices(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                          const Reducer& reducer) {
  const Offsets parts = slices_of(nodes, data.size(), reducer.element_bytes());
  std::byte* mine = data.data() + parts[static_cast<std::size_t>(nodes.index())];
  const std::size_t count = size_of_part(parts, nodes.index()) / reducer.element_bytes();
  PartialReducer partials(reducer);
  const std::size_t bytes = count * partials.element_bytes();
  const auto room = mesh.buffer_pool().take(partials.fits_in_place() ? 0 : bytes);
  std::byte* partial = partials.fits_in_place() ? mine : room.get();
  fold_here(nodes, data, partial, parts, reducer, partials);
  if (!nodes.peers().empty()) {
    Submesh peers(mesh, nodes.peers(), nodes.node());
    algorithms::all_reduce(peers, {partial, bytes}, partials.joining());
    partials.finish(partial, mine, count, mesh.size());
  }
  if (nodes.shm() != nullptr) shared::all_gather(*nodes.shm(), {data.data(), parts});
}

void reduce_in_slices(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                      const Reducer& reducer) {
  const Offsets parts = slices_of(nodes, in.size(), reducer.element_bytes());
  const std::size_t size = size_of_part(parts, nodes.index());
  const std::size_t count = size / reducer.element_bytes();
  PartialReducer partials(reducer);
  const std::size_t bytes = count * partials.element_bytes();
  const auto partial = mesh.buffer_pool().take(bytes);
  const auto room = mesh.buffer_pool().take(size);
  fold_here(nodes, in, partial.get(), parts, reducer, partials);
  std::byte* mine = place_of_slice(mesh, nodes, room, out, root);
  const int to = nodes.layout().node_of(root);
  if (!nodes.peers().empty()) {
    Submesh peers(mesh, nodes.peers(), nodes.node());
    algorithms::reduce(peers, {partial.get(), bytes}, partial.get(), to, partials.joining());
    if (nodes.node() == to) partials.finish(partial.get(), mine, count, mesh.size());
  }
  gather_slices(nodes, {mine, size}, out, parts, root);
}

}  // namespace dlaunch::algorithms::by_node
