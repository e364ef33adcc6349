#include "rendezvous/rounds/rank_order.hpp"

#include "rendezvous/rounds/texts.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// The order of nodes that have no place yet: by hint, which a scheduler may have given, then by
/// name.
bool before(const Node* a, const Node* b) {
  const auto number = [](const std::optional<int>& n) {
    return n.value_or(std::numeric_limits<int>::max());
  };
  const auto& x = a->offer;
  const auto& y = b->offer;
  if (x.rank_hint != y.rank_hint) return number(x.rank_hint) < number(y.rank_hint);
  return natural_less(x.id, y.id);
}

/// If there is no room for all, the nodes of the last epoch come first.
std::vector<const Node*> choose(const Nodes& nodes, const NodeRanks& rank_of, int nodes_max) {
  std::vector<std::pair<int, const Node*>> candidates;  // Each with the rank it had.
  candidates.reserve(static_cast<std::size_t>(nodes.count()));
  for (const auto& [session, node] : nodes) {
    if (node.gone) continue;
    const auto had = rank_of.find(node.offer.id);
    candidates.emplace_back(had == rank_of.end() ? std::numeric_limits<int>::max() : had->second,
                            &node);
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : before(a.second, b.second);
  });
  candidates.resize(std::min(candidates.size(), static_cast<std::size_t>(nodes_max)));
  std::vector<const Node*> chosen;
  chosen.reserve(candidates.size());
  for (const auto& candidate : candidates) chosen.push_back(candidate.second);
  return chosen;
}

/// A node's claim is its hint, or else its last rank, unless another node's hint is the same.
/// Claims that fit are honoured, and newcomers fill the holes. If the world is too small for a
/// claim, the nodes that have one close up in their order.
std::vector<const Node*> in_order(const std::vector<const Node*>& chosen,
                                  const NodeRanks& rank_of) {
  std::set<int> hints;
  for (const Node* node : chosen) {
    if (node->offer.rank_hint) hints.insert(*node->offer.rank_hint);
  }
  std::vector<std::pair<int, const Node*>> claims;
  std::vector<const Node*> newcomers;
  for (const Node* node : chosen) {
    const auto had = rank_of.find(node->offer.id);
    if (node->offer.rank_hint) {
      claims.emplace_back(*node->offer.rank_hint, node);
    } else if (had != rank_of.end() && !hints.contains(had->second)) {
      claims.emplace_back(had->second, node);
    } else {
      newcomers.push_back(node);
    }
  }
  std::sort(claims.begin(), claims.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::sort(newcomers.begin(), newcomers.end(), before);
  std::vector<const Node*> ordered;
  ordered.reserve(chosen.size());
  auto claim = claims.begin();
  auto newcomer = newcomers.begin();
  while (ordered.size() < chosen.size()) {
    const bool due = claim != claims.end() && claim->first <= static_cast<int>(ordered.size());
    if (due || newcomer == newcomers.end()) {
      ordered.push_back((claim++)->second);
    } else {
      ordered.push_back(*newcomer++);
    }
  }
  return ordered;
}

}  // namespace

std::vector<const Node*> rank_order(const Nodes& nodes, const NodeRanks& rank_of, int nodes_max) {
  return in_order(choose(nodes, rank_of, nodes_max), rank_of);
}

}  // namespace dlaunch::rendezvous
