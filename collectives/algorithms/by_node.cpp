#include "collectives/algorithms/by_node.hpp"

#include "collectives/algorithms/shared.hpp"
#include "collectives/algorithms/submesh.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dlaunch::algorithms::by_node {
namespace {

/// What goes on from a leader to its node while the next is on its way.
constexpr std::size_t block_bytes = 512u << 10;

std::vector<int> ranks_at(const Layout& layout, int index) {
  std::vector<int> ranks;
  if (index >= layout.fewest()) return ranks;
  for (int node = 0; node < layout.nodes(); ++node) ranks.push_back(layout.rank_at(node, index));
  return ranks;
}

/// Where each rank's part lies if the nodes' ranks lie behind one another.
class Packing {
 public:
  Packing(const Layout& layout, std::size_t each) : layout_(layout), each_(each) {
    for (int node = 0; node < layout.nodes(); ++node) {
      nodes_.push_back(nodes_.back() + layout.members(node).size() * each);
    }
  }
  std::size_t bytes() const { return nodes_.back(); }
  const Offsets& nodes() const { return nodes_; }
  std::size_t of_rank(int rank) const {
    return nodes_[static_cast<std::size_t>(layout_.node_of(rank))] +
           static_cast<std::size_t>(layout_.index_of(rank)) * each_;
  }
  std::span<std::byte> of_node(std::byte* packed, int node) const {
    const auto n = static_cast<std::size_t>(node);
    return {packed + nodes_[n], nodes_[n + 1] - nodes_[n]};
  }

 private:
  const Layout& layout_;
  const std::size_t each_;
  Offsets nodes_{0};
};

/// A step with the team before anything is waited for from other nodes: by it the node's ranks know
/// that this one is in the call.
void announce(const Nodes& nodes) {
  if (nodes.team() == nullptr) return;
  nodes.team()->open();
  nodes.team()->publish();
}

/// Every rank's `mine` to the leader of its node, which has the node's ranks behind one another.
void gather_on_node(const Nodes& nodes, BytesView mine, std::byte* all, int leader) {
  Team* team = nodes.team();
  if (team == nullptr) {
    if (!mine.empty() && mine.data() != all) std::memmove(all, mine.data(), mine.size());
    return;
  }
  const Offsets parts = equal_parts(team->size(), mine.size());
  shared::gather(*team, mine, all, parts, leader, shared::Parts::equal);
}

/// Everything to everyone, packed.
void gather_packed(Mesh& mesh, const Nodes& nodes, BytesView mine, std::byte* packed,
                   const Packing& packing) {
  gather_on_node(nodes, mine, packing.of_node(packed, nodes.node()).data(), 0);
  if (nodes.index() == 0) {
    Submesh leaders(mesh, nodes.leaders(), nodes.node());
    all_gather(leaders, packed, packing.nodes());
  }
  if (nodes.team() != nullptr) shared::broadcast(*nodes.team(), {packed, packing.bytes()}, 0);
}

/// The leaders, of which the root's node has the root.
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
  int index;  ///< Of the one on this rank's node.
  bool speaks;
};

}  // namespace

Nodes::Nodes(Layout layout, int rank, std::unique_ptr<Team> team)
    : layout_(std::move(layout)),
      node_(layout_.node_of(rank)),
      index_(layout_.index_of(rank)),
      leaders_(ranks_at(layout_, 0)),
      peers_(ranks_at(layout_, index_)),
      team_(std::move(team)) {}

void barrier(Mesh& mesh, const Nodes& nodes) {
  if (nodes.team() != nullptr) shared::barrier(*nodes.team());
  if (nodes.index() == 0) {
    Submesh leaders(mesh, nodes.leaders(), nodes.node());
    algorithms::barrier(leaders);
  }
  if (nodes.team() != nullptr) shared::broadcast(*nodes.team(), {}, 0);
}

void broadcast(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data, int root) {
  announce(nodes);
  const Speakers speakers(nodes, root);
  Submesh between(mesh, speakers.ranks, nodes.node());
  std::size_t begin = 0;
  do {
    const auto block = data.subspan(begin, std::min(block_bytes, data.size() - begin));
    if (speakers.speaks) algorithms::broadcast(between, block, speakers.node);
    if (nodes.team() != nullptr) shared::broadcast(*nodes.team(), block, speakers.index);
    begin += block.size();
  } while (begin < data.size());
}

void all_gather_by_leaders(Mesh& mesh, const Nodes& nodes, std::byte* data, std::size_t each) {
  const Packing packing(nodes.layout(), each);
  const BytesView mine(data + static_cast<std::size_t>(mesh.rank()) * each, each);
  if (nodes.layout().in_order()) return gather_packed(mesh, nodes, mine, data, packing);
  const auto packed = mesh.rooms().take(packing.bytes());
  gather_packed(mesh, nodes, mine, packed.get(), packing);
  for (int rank = 0; rank < mesh.size() && each > 0; ++rank) {
    std::memcpy(data + static_cast<std::size_t>(rank) * each, packed.get() + packing.of_rank(rank),
                each);
  }
}

void all_reduce_by_leaders(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                           const Folder& fold) {
  const Packing packing(nodes.layout(), data.size());
  const auto packed = mesh.rooms().take(packing.bytes());
  gather_packed(mesh, nodes, data, packed.get(), packing);
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    inputs.push_back(packed.get() + packing.of_rank(rank));
  }
  fold(inputs, data.data(), data.size() / fold.element_bytes());
}

void reduce_by_leaders(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                       const Folder& fold) {
  const Speakers speakers(nodes, root);
  const Packing packing(nodes.layout(), in.size());
  const auto packed = mesh.rooms().take(speakers.speaks ? packing.bytes() : 0);
  const auto here =
      speakers.speaks ? packing.of_node(packed.get(), nodes.node()) : std::span<std::byte>();
  gather_on_node(nodes, in, here.data(), speakers.index);
  if (!speakers.speaks) return;
  Submesh between(mesh, speakers.ranks, nodes.node());
  gather_direct(between, here, packed.get(), packing.nodes(), speakers.node);
  if (mesh.rank() != root) return;
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    inputs.push_back(packed.get() + packing.of_rank(rank));
  }
  fold(inputs, out, in.size() / fold.element_bytes());
}

void all_gather_in_slices(Mesh& mesh, const Nodes& nodes, std::byte* data, std::size_t each) {
  announce(nodes);
  const Layout& layout = nodes.layout();
  const int n = layout.nodes(), me = nodes.node();
  const auto part_of = [&](int node) {
    const int rank = layout.rank_at(node, nodes.index());
    return std::span(data + static_cast<std::size_t>(rank) * each, each);
  };
  Submesh peers(mesh, nodes.peers(), me);
  const Offsets parts = equal_parts(layout.most(), each);
  for (int step = 0; step < n; ++step) {
    // What came last, or was here: on to the next node, and to all of this one.
    const int node = (me - step + n) % n;
    const auto before = (node - 1 + n) % n;
    if (step < n - 1) {
      peers.exchange((me + 1) % n, part_of(node), (me - 1 + n) % n, part_of(before));
    }
    if (nodes.team() == nullptr) continue;
    const auto first = static_cast<std::size_t>(layout.rank_at(node, 0));
    shared::all_gather(*nodes.team(), data + first * each, parts);
  }
}

}  // namespace dlaunch::algorithms::by_node
