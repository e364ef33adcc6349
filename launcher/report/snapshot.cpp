#include "launcher/report/snapshot.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {

void JobSnapshot::add(NodeSnapshot node) {
  const auto is_it = [&](const NodeSnapshot& other) { return other.node == node.node; };
  if (std::ranges::any_of(nodes, is_it)) return;
  const auto behind = std::ranges::upper_bound(nodes, node.node_rank, {}, &NodeSnapshot::node_rank);
  nodes.insert(behind, std::move(node));
}

bool JobSnapshot::has_calls() const {
  return std::ranges::any_of(nodes, [](const NodeSnapshot& node) {
    return std::ranges::any_of(node.ranks, [](const auto& rank) { return rank.log.begun != 0; });
  });
}

std::vector<int> JobSnapshot::missing() const {
  if (nodes.empty()) return {};
  std::vector<bool> here(static_cast<std::size_t>(std::max(0, nodes.front().world_size)));
  for (const auto& node : nodes) {
    for (const auto& rank : node.ranks) {
      const auto place = static_cast<std::size_t>(rank.rank);
      if (place < here.size()) here[place] = true;
    }
  }
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    if (!here[rank]) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

}  // namespace dlaunch::launcher
