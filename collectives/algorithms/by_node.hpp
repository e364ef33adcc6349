#pragma once

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/select/layout.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

/// The collectives of ranks of several nodes, some of which have an shm group: through the memory
/// of a node as far as that goes, and over the mesh from node to node, where less is sent than if
/// every rank spoke to every other. Meaning, order and bits as in algorithms.hpp.
namespace dlaunch::algorithms::by_node {

using transport::ShmGroup;

/// A communicator's nodes, as one of its ranks sees them.
class Nodes {
 public:
  /// `shm` is the group of the rank's node; null if the rank is alone there.
  Nodes(Layout layout, int rank, std::unique_ptr<ShmGroup> shm);

  const Layout& layout() const { return layout_; }
  ShmGroup* shm() const { return shm_.get(); }
  int node() const { return node_; }
  int index() const { return index_; }
  /// The first rank of each node.
  std::span<const int> leaders() const { return leaders_; }
  /// The rank at this one's place on each node; empty if some node has none there.
  std::span<const int> peers() const { return peers_; }
  /// The rank of a member of the shm group.
  int rank_of(int member) const { return layout_.rank_at(node_, member); }

 private:
  Layout layout_;
  int node_, index_;
  std::vector<int> leaders_, peers_;
  std::unique_ptr<ShmGroup> shm_;
};

// ---- By leaders: one rank of each node speaks for it. ----

void barrier(Mesh& mesh, const Nodes& nodes);
void broadcast(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data, int root);
/// Every node's raw data goes to every rank.
void all_gather_by_leaders(Mesh& mesh, const Nodes& nodes, const RankParts& data);
/// Equal parts.
void gather_by_leaders(Mesh& mesh, const Nodes& nodes, BytesView mine, std::byte* all, int root);
void scatter_by_leaders(Mesh& mesh, const Nodes& nodes, const std::byte* all,
                        std::span<std::byte> mine, int root);
void all_reduce_by_leaders(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                           const Reducer& reducer);
void reduce_by_leaders(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                       const Reducer& reducer);

// ---- In slices: every rank of a node speaks for its part of the data. ----

/// As many ranks on each node, in order, and equal parts.
void all_gather_in_slices(Mesh& mesh, const Nodes& nodes, const RankParts& data);
/// Each node reduces, then the nodes' results are reduced in their order: for freedom `neighbours`
/// if ranks are in order, else `any`.
void all_reduce_in_slices(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                          const Reducer& reducer);
void reduce_in_slices(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                      const Reducer& reducer);

// ---- In a chain: the same, but each node reduces onto the result of the nodes before it, chunk by
// chunk, for freedom `extends`; ranks are in order. ----

void all_reduce_in_chain(Mesh& mesh, const Nodes& nodes, std::span<std::byte> data,
                         const Reducer& reducer);
void reduce_in_chain(Mesh& mesh, const Nodes& nodes, BytesView in, std::byte* out, int root,
                     const Reducer& reducer);
/// As many ranks on each node, and equal parts.
void reduce_scatter_in_chain(Mesh& mesh, const Nodes& nodes, const ConstRankParts& in,
                             std::byte* out, const Reducer& reducer);

}  // namespace dlaunch::algorithms::by_node
