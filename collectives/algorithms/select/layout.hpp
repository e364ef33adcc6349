#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dlaunch::algorithms {

/// The node of each rank of a communicator. A plain value, the same on all ranks.
class Layout {
 public:
  /// `numbers` has one for each rank; ranks with equal numbers are on one node. Nodes are counted
  /// in the order of their first ranks.
  explicit Layout(std::span<const std::uint64_t> numbers);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  /// Its place among the members of its node.
  int index_of(int rank) const { return index_of_[static_cast<std::size_t>(rank)]; }
  /// The ranks of a node, in their order.
  const std::vector<int>& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  int rank_at(int node, int index) const { return members(node)[static_cast<std::size_t>(index)]; }
  /// The numbers of ranks of the smallest and of the largest node.
  int fewest() const { return fewest_; }
  int most() const { return most_; }
  bool is_even() const { return fewest_ == most_; }
  /// Whether each node's ranks are consecutive.
  bool in_order() const { return in_order_; }
  bool operator==(const Layout&) const = default;

 private:
  std::vector<int> node_of_, index_of_;
  std::vector<std::vector<int>> members_;
  int fewest_ = 0, most_ = 0;
  bool in_order_ = true;
};

}  // namespace dlaunch::algorithms
