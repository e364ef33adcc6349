#include "rendezvous/rounds/rank_order.hpp"

#include "rendezvous/rounds/texts.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// None comes last.
int number_of(const std::optional<int>& n) { return n.value_or(std::numeric_limits<int>::max()); }

/// The order of nodes that have no place yet: by hint, which a scheduler may have given, then by
/// name.
bool before(const Node* a, const Node* b) {
  const auto& x = a->offer;
  const auto& y = b->offer;
  if (x.rank_hint != y.rank_hint) return number_of(x.rank_hint) < number_of(y.rank_hint);
  return natural_less(x.id, y.id);
}

/// A node, and the rank that it had.
struct Candidate {
  std::optional<int> had;
  const Node* node = nullptr;
};

/// If there is no room for all, the nodes of the last epoch come first.
std::vector<Candidate> choose(const Nodes& nodes, const NodeRanks& rank_of, int nodes_max) {
  std::vector<Candidate> chosen;
  chosen.reserve(static_cast<std::size_t>(nodes.count()));
  for (const auto& [session, node] : nodes) {
    if (node.gone) continue;
    const auto had = rank_of.find(node.offer.id);
    chosen.push_back({had == rank_of.end() ? std::nullopt : std::optional(had->second), &node});
  }
  const auto room = static_cast<std::size_t>(nodes_max);
  if (chosen.size() <= room) return chosen;
  std::sort(chosen.begin(), chosen.end(), [](const Candidate& a, const Candidate& b) {
    return a.had != b.had ? number_of(a.had) < number_of(b.had) : before(a.node, b.node);
  });
  chosen.resize(room);
  return chosen;
}

/// A node's claim is its hint, or else its last rank, unless another node's hint is the same.
/// Claims that fit are honoured, and newcomers fill the holes. If the world is too small for a
/// claim, the nodes that have one close up in their order.
std::vector<const Node*> in_order(const std::vector<Candidate>& chosen) {
  std::set<int> hints;
  for (const auto& [had, node] : chosen) {
    if (node->offer.rank_hint) hints.insert(*node->offer.rank_hint);
  }
  std::vector<std::pair<int, const Node*>> claims;
  std::vector<const Node*> newcomers;
  for (const auto& [had, node] : chosen) {
    if (node->offer.rank_hint) {
      claims.emplace_back(*node->offer.rank_hint, node);
    } else if (had && !hints.contains(*had)) {
      claims.emplace_back(*had, node);
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
  return in_order(choose(nodes, rank_of, nodes_max));
}

}  // namespace dlaunch::rendezvous
