#include "collectives/algorithms/by_node.hpp"

#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/requests.hpp"
#include "collectives/algorithms/messages/submesh.hpp"
#include "collectives/algorithms/select/put.hpp"
#include "collectives/algorithms/shared/shared.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dlaunch::algorithms::by_node {
namespace {

/// The size of a block: a leader hands one on to its node while the next is on its way.
constexpr std::size_t block_bytes = 512u << 10;

std::vector<int> ranks_at(const Layout& layout, int index) {
  std::vector<int> ranks;
  if (index >= layout.fewest()) return ranks;
  for (int node = 0; node < layout.nodes(); ++node) ranks.push_back(layout.rank_at(node, index));
  return ranks;
}

/// The place of each rank's part if the nodes' ranks lie behind one another.
class Packing {
 public:
  Packing(const Layout& layout, std::size_t each)
      : Packing(layout, Offsets(layout.ranks(), each)) {}
  Packing(const Layout& layout, Offsets parts)
      : layout_(layout),
        parts_(std::move(parts)),
        of_rank_(static_cast<std::size_t>(layout.ranks())) {
    for (int node = 0; node < layout.nodes(); ++node) {
      std::size_t bytes = 0;
      for (const int rank : layout.members(node)) {
        of_rank_[static_cast<std::size_t>(rank)] = nodes_.back() + bytes;
        bytes += size_of_part(parts_, rank);
      }
      nodes_.add(bytes);
    }
  }
  std::size_t bytes() const { return nodes_.back(); }
  const Offsets& nodes() const { return nodes_; }
  std::size_t of_rank(int rank) const { return of_rank_[static_cast<std::size_t>(rank)]; }
  std::span<std::byte> of_node(std::byte* packed, int node) const {
    return {packed + begin_of_part(nodes_, node), size_of_part(nodes_, node)};
  }
  /// The parts of a node's ranks, counted from its first.
  Offsets parts_of(int node) const {
    Offsets parts;
    for (const int rank : layout_.members(node)) parts.add(size_of_part(parts_, rank));
    return parts;
  }

 private:
  const Layout& layout_;
  const Offsets parts_;
  std::vector<std::size_t> of_rank_;
  Offsets nodes_;
};

/// Makes a step with the shm group before it waits for other nodes, so that the node's ranks know
/// that this one is in the call.
void announce(const Nodes& nodes) {
  if (nodes.shm() == nullptr) return;
  nodes.shm()->open();
  nodes.shm()->publish();
}

/// Sends every rank's `mine` to the leader of its node, where the node's ranks lie one behind the
/// other.
void gather_on_node(const Nodes& nodes, BytesView mine, std::byte* all, int leader,
                    const Packing& packing, shared::Parts how = shared::Parts::equal) {
  if (nodes.shm() == nullptr) return put(all, mine.data(), mine.size());
  shared::gather(*nodes.shm(), mine, {all, packing.parts_of(nodes.node())}, leader, how);
}

/// Gives everything to everyone, packed.
void gather_packed(Mesh& mesh, const Nodes& nodes, BytesView mine, std::byte* packed,
                   const Packing& packing, shared::Parts how) {
  std::byte* here = packing.of_node(packed, nodes.node()).data();
  gather_on_node(nodes, mine, here, 0, packing, how);
  if (nodes.index() == 0) {
    Submesh leaders(mesh, nodes.leaders(), nodes.node());
    all_gather(leaders, {packed, packing.nodes()});
  }
  if (nodes.shm() != nullptr) shared::broadcast(*nodes.shm(), {packed, packing.bytes()}, 0);
}

/// Sends each node's part to its speaker's `into`; the root's part stays in place.
void scatter_to_nodes(Mesh& between, const std::byte* packed, std::span<std::byte> into,
                      const Offsets& parts, int root) {
  if (between.rank() != root) return between.recv(root, into);
  Requests requests(between);
  for (int node = 0; node < between.size(); ++node) {
    if (node == root) continue;
    requests.send(node,
                  {packed + parts[static_cast<std::size_t>(node)], size_of_part(parts, node)});
  }
  requests.land();
}

/// The nodes' speakers: the leaders, but on the root's node the root.
struct Speakers {
  Speakers(const Nodes& nodes, int root)
      : node(nodes.layout().node_of(root)),
        ranks(nodes.leaders().begin(), nodes.leaders().end()),
        index(nodes.node() == node ? nodes.layout().index_of(root) : 0),
        speaks(nodes.index() == index) {
    ranks[static_cast<std::size_t>(node)] = root;
  }
  int node;  ///< The root's.
  std::vector<int> ranks;
  int index;  ///< The index of this node's speaker.
  bool speaks;
};

}  // namespace

Nodes::Nodes(Layout layout, int rank, std::unique_ptr<ShmGroup> shm)
    : layout_(std::move(layout)),
      node_(layout_.node_of(rank)),
      index_(layout_.index_of(rank)),
      leaders_(ranks_at(layout_, 0)),
      peers_(ranks_at(layout_, index_)),
      shm_(std::move(shm)) {}

void barrier(Mesh& mesh, const Nodes& nodes) {
  if (nodes.shm() != nullptr) shared::barrier(*nodes.shm());
  if (nodes.index() == 0) {
    Submesh leaders(mesh, nodes.leaders(), nodes.node());
    algorithms::barrier(leaders);
  }
  if (nodes.shm() != nullptr) shared::broadcast(*nodes.shm(), {}, 0);
}

void broadcast(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data, int root) {
  announce(nodes);
  const Speakers speakers(nodes, root);
  Submesh between(mesh, speakers.ranks, nodes.node());
  std::size_t begin = 0;
  do {
    const auto block = data.subspan(begin, std::min(block_bytes, data.size() - begin));
    if (speakers.speaks) algorithms::broadcast(between, block, speakers.node);
    if (nodes.shm() != nullptr) shared::broadcast(*nodes.shm(), block, speakers.index);
    begin += block.size();
  } while (begin < data.size());
}

void all_gather_by_leaders(Mesh& mesh, const Nodes& nodes, const RankParts& data) {
  const Packing packing(nodes.layout(), data.offsets());
  const auto how = data.offsets().are_equal() ? shared::Parts::equal : shared::Parts::differing;
  const BytesView mine = data[mesh.rank()];
  if (nodes.layout().in_order() && data.are_together()) {
    return gather_packed(mesh, nodes, mine, data.begin(0), packing, how);
  }
  const auto packed = mesh.buffer_pool().take(packing.bytes());
  gather_packed(mesh, nodes, mine, packed.get(), packing, how);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    put(data.begin(rank), packed.get() + packing.of_rank(rank), data.size(rank));
  }
}

void gather_by_leaders(Mesh& mesh, const Nodes& nodes, BytesView mine, std::byte* all, int root) {
  const Speakers speakers(nodes, root);
  const Packing packing(nodes.layout(), mine.size());
  const bool in_order = nodes.layout().in_order();
  const bool is_root = mesh.rank() == root;
  const auto room =
      mesh.buffer_pool().take(speakers.speaks && !(is_root && in_order) ? packing.bytes() : 0);
  std::byte* packed = is_root && in_order ? all : room.get();
  const auto here =
      speakers.speaks ? packing.of_node(packed, nodes.node()) : std::span<std::byte>();
  gather_on_node(nodes, mine, here.data(), speakers.index, packing);
  if (!speakers.speaks) return;
  Submesh between(mesh, speakers.ranks, nodes.node());
  gather_direct(between, here, {packed, packing.nodes()}, speakers.node);
  if (!is_root || in_order) return;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    put(all + static_cast<std::size_t>(rank) * mine.size(), packed + packing.of_rank(rank),
        mine.size());
  }
}

void scatter_by_leaders(Mesh& mesh, const Nodes& nodes, const std::byte* all,
                        std::span<std::byte> mine, int root) {
  announce(nodes);
  const Speakers speakers(nodes, root);
  const Packing packing(nodes.layout(), mine.size());
  const bool is_root = mesh.rank() == root, in_order = nodes.layout().in_order();
  const auto room =
      mesh.buffer_pool().take(speakers.speaks && !(is_root && in_order) ? packing.bytes() : 0);
  const std::byte* packed = is_root && in_order ? all : room.get();
  for (int rank = 0; is_root && !in_order && rank < mesh.size(); ++rank) {
    put(room.get() + packing.of_rank(rank), all + static_cast<std::size_t>(rank) * mine.size(),
        mine.size());
  }
  const BytesView here =
      speakers.speaks ? BytesView(packed + packing.nodes()[static_cast<std::size_t>(nodes.node())],
                                  nodes.layout().members(nodes.node()).size() * mine.size())
                      : BytesView();
  if (speakers.speaks) {
    Submesh between(mesh, speakers.ranks, nodes.node());
    const auto into = is_root ? std::span<std::byte>() : packing.of_node(room.get(), nodes.node());
    scatter_to_nodes(between, packed, into, packing.nodes(), speakers.node);
  }
  if (nodes.shm() == nullptr) return put(mine.data(), here.data(), mine.size());
  shared::scatter(*nodes.shm(), {here.data(), packing.parts_of(nodes.node())}, mine, speakers.index,
                  shared::Parts::equal);
}

void all_reduce_by_leaders(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                           const Reducer& reducer) {
  const Packing packing(nodes.layout(), data.size());
  const auto packed = mesh.buffer_pool().take(packing.bytes());
  gather_packed(mesh, nodes, data, packed.get(), packing, shared::Parts::equal);
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    inputs.push_back(packed.get() + packing.of_rank(rank));
  }
  reducer(inputs, data.data(), data.size() / reducer.element_bytes());
}

void reduce_by_leaders(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                       const Reducer& reducer) {
  const Speakers speakers(nodes, root);
  const Packing packing(nodes.layout(), in.size());
  const auto packed = mesh.buffer_pool().take(speakers.speaks ? packing.bytes() : 0);
  const auto here =
      speakers.speaks ? packing.of_node(packed.get(), nodes.node()) : std::span<std::byte>();
  gather_on_node(nodes, in, here.data(), speakers.index, packing);
  if (!speakers.speaks) return;
  Submesh between(mesh, speakers.ranks, nodes.node());
  gather_direct(between, here, {packed.get(), packing.nodes()}, speakers.node);
  if (mesh.rank() != root) return;
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    inputs.push_back(packed.get() + packing.of_rank(rank));
  }
  reducer(inputs, out, in.size() / reducer.element_bytes());
}

void all_gather_in_slices(Mesh& mesh, const Nodes& nodes, const RankParts& data) {
  announce(nodes);
  const Layout& layout = nodes.layout();
  const int n = layout.nodes(), me = nodes.node();
  const auto part_of = [&](int node) { return data[layout.rank_at(node, nodes.index())]; };
  Submesh peers(mesh, nodes.peers(), me);
  const Offsets here(layout.most(), data.offsets().longest());
  for (int step = 0; step < n; ++step) {
    // Hands the block that came last, or the own one, to the next node and to all ranks of this
    // one.
    const int node = (me - step + n) % n;
    const auto before = (node - 1 + n) % n;
    if (step < n - 1) {
      peers.exchange((me + 1) % n, part_of(node), (me - 1 + n) % n, part_of(before));
    }
    if (nodes.shm() == nullptr) continue;
    shared::all_gather(*nodes.shm(), data.some(layout.rank_at(node, 0), here));
  }
}

}  // namespace dlaunch::algorithms::by_node
