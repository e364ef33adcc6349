#include "collectives/algorithms/select/layout.hpp"

#include <algorithm>
#include <map>

namespace dlaunch::algorithms {

Layout::Layout(std::span<const std::uint64_t> numbers) {
  std::map<std::uint64_t, int> known;
  for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
    const auto [entry, is_new] = known.try_emplace(numbers[rank], nodes());
    const int node = entry->second;
    if (is_new) members_.emplace_back();
    in_order_ = in_order_ && node == nodes() - 1;
    auto& here = members_[static_cast<std::size_t>(node)];
    node_of_.push_back(node);
    index_of_.push_back(static_cast<int>(here.size()));
    here.push_back(static_cast<int>(rank));
  }
  const auto by_size = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [least, greatest] = std::minmax_element(members_.begin(), members_.end(), by_size);
  if (members_.empty()) return;
  fewest_ = static_cast<int>(least->size());
  most_ = static_cast<int>(greatest->size());
}

}  // namespace dlaunch::algorithms
