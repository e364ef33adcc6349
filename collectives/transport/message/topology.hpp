#pragma once

#include <dlaunch/store.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dlaunch::transport {

/// The place where a rank runs, as it says itself.
struct Location {
  std::int32_t node = 0;      ///< WorldInfo::node_rank.
  std::int32_t local = 0;     ///< Its rank on that node.
  std::uint64_t segment = 0;  ///< Id of the segment that it has mapped; 0: none.
  bool operator==(const Location&) const = default;
};

/// Makes it known to the other ranks of the world. Throws what the store throws.
void announce(Store& store, int world_rank, const Location& location);
/// nullopt: it has not been announced yet. Throws Error{internal} if something else is there.
std::optional<Location> find_location(Store& store, int world_rank);

/// Which ranks of a world are on which node. A plain value, the same on all ranks.
class Topology {
 public:
  /// One location for each world rank.
  explicit Topology(std::vector<Location> locations);

  int size() const { return static_cast<int>(locations_.size()); }
  /// Nodes are 0..nodes()-1 in the order of their node ranks, of which some may be missing.
  int nodes() const { return static_cast<int>(nodes_.size()); }
  int node_of(int world_rank) const { return node_of_[static_cast<std::size_t>(world_rank)]; }
  /// World ranks, in the order of their local ranks.
  const std::vector<int>& ranks_of(int node) const { return at(node).ranks; }
  /// Location among the ranks of its node.
  int index_of(int world_rank) const { return index_of_[static_cast<std::size_t>(world_rank)]; }
  /// All ranks of this node have mapped one and the same segment.
  bool shares(int node) const { return at(node).shares; }
  const Location& location_of(int world_rank) const {
    return locations_[static_cast<std::size_t>(world_rank)];
  }
  bool operator==(const Topology&) const = default;

 private:
  struct Node {
    std::vector<int> ranks;
    bool shares = false;
    bool operator==(const Node&) const = default;
  };
  const Node& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::vector<Location> locations_;
  std::vector<Node> nodes_;
  std::vector<int> node_of_, index_of_;
};

/// Learns the topology of a world bit by bit. It asks, and never waits: a rank that has not come
/// to announce itself must not keep the others from hearing that it never will. For one thread.
class Survey {
 public:
  explicit Survey(int size) : size_(size) {}

  /// Asks the store for those locations that are not known; null until all are. Borrowed. Throws
  /// what the store throws, and find_location.
  const Topology* ask(Store& store);
  /// The topology if it is known without asking.
  const Topology* topology() const { return topology_ ? &*topology_ : nullptr; }

 private:
  int size_;
  std::vector<std::optional<Location>> locations_;  ///< As long as it asks.
  std::optional<Topology> topology_;
};

}  // namespace dlaunch::transport
