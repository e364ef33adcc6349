#include "rendezvous/rounds/seating.hpp"

#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using Places = std::vector<std::size_t>;

/// Calls `visit` for each group of nodes with the same name; nodes without one are in none. A big
/// job has thousands of names, so they are looked at only where their hashes are equal.
template <class Visit>
void visit_alike(const std::vector<const Node*>& nodes, std::size_t Node::*hash,
                 std::string HostShare::*name, Visit visit) {
  const auto name_of = [&](std::size_t i) -> const std::string& {
    return nodes[i]->offer.share.*name;
  };
  std::vector<std::pair<std::size_t, std::size_t>> order;  // Hash and place.
  order.reserve(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!name_of(i).empty()) order.emplace_back(nodes[i]->*hash, i);
  }
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const int compared = name_of(a.second).compare(name_of(b.second));
    return compared != 0 ? compared < 0 : a.second < b.second;
  });
  Places places;
  for (auto at = order.begin(); at != order.end();) {
    const auto [hashed, first] = *at;
    places.assign(1, first);
    while (++at != order.end() && at->first == hashed && name_of(at->second) == name_of(first)) {
      places.push_back(at->second);
    }
    visit(places);
  }
}

/// Whether these nodes are few enough, and their ranks, to share memory.
bool fits_memory(const std::vector<const Node*>& nodes, const Places& places) {
  if (places.size() < 2 || places.size() > memory_parts_max) return false;
  std::size_t ranks = 0;
  for (const std::size_t i : places) ranks += static_cast<std::size_t>(nodes[i]->offer.workers);
  return ranks <= segment_ranks_max && !nodes[places.front()]->offer.share.lends_at.empty();
}

/// Finds what each node's admission says of other nodes of its host. Nodes that share memory are
/// crowded alike, since their ranks wait for each other in it.
std::vector<Housemates> find_housemates(const std::vector<const Node*>& nodes) {
  std::vector<Housemates> found(nodes.size());
  std::vector<CommonMemory::Part> parts;
  parts.reserve(nodes.size());
  for (int first = 0; const Node* node : nodes) {
    parts.push_back({first, node->offer.workers});
    first += node->offer.workers;
  }
  visit_alike(nodes, &Node::kernel_hash, &HostShare::kernel, [&](const Places& places) {
    if (places.size() == 1) {
      const NodeOffer& alone = nodes[places.front()]->offer;
      found[places.front()].crowded = alone.share.processors.oversubscribed_by(alone.workers);
      return;
    }
    std::vector<Tenants> tenants;
    for (const std::size_t i : places) {
      tenants.push_back({nodes[i]->offer.workers, nodes[i]->offer.share.processors});
    }
    const auto crowded = find_crowded(tenants);
    for (std::size_t k = 0; k < places.size(); ++k) found[places[k]].crowded = crowded[k];
  });
  visit_alike(nodes, &Node::memory_hash, &HostShare::memory, [&](const Places& places) {
    if (!fits_memory(nodes, places)) return;
    CommonMemory common;
    for (const std::size_t i : places) common.parts.push_back(parts[i]);
    const bool crowded =
        std::ranges::any_of(places, [&](const std::size_t i) { return found[i].crowded; });
    for (const std::size_t i : places) {
      found[i] = {crowded, common};
      if (i != places.front()) {
        found[i].memory.lender = nodes[places.front()]->offer.share.lends_at;
      }
    }
  });
  return found;
}

}  // namespace

Seating::Seating(std::vector<const Node*> nodes)
    : nodes_(std::move(nodes)), housemates_(find_housemates(nodes_)) {
  roster_.reserve(nodes_.size());
}

Epoch Seating::begin(Admission common) {
  common.node_count = static_cast<int>(nodes_.size());
  common.world_size = 0;
  for (const Node* node : nodes_) common.world_size += node->offer.workers;
  common.store_addresses = nodes_.front()->offer.store_addresses;
  next_ = common;
  return Epoch(std::move(common));
}

bool Seating::seat_next(Epoch& epoch) {
  if (seated_ == nodes_.size()) return false;
  const Node& node = *nodes_[seated_];
  const NodeOffer& offer = node.offer;
  roster_.push_back({offer.id, offer.host, next_.first_rank, offer.workers, offer.store_addresses});
  epoch.seat(node, {next_, offer.workers, std::move(housemates_[seated_])});
  ++next_.node_rank;
  next_.first_rank += offer.workers;
  if (++seated_ == nodes_.size()) epoch.complete(std::move(roster_));
  return true;
}

}  // namespace dlaunch::rendezvous
