#include "rendezvous/rounds/housemates.hpp"

#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <map>
#include <string_view>

namespace dlaunch::rendezvous {
namespace {

using Places = std::vector<std::size_t>;

/// Groups of nodes with the same name; nodes without one are in none.
std::map<std::string_view, Places> alike(const std::vector<const Node*>& nodes,
                                         std::string HostShare::*name) {
  std::map<std::string_view, Places> groups;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string& named = nodes[i]->offer.share.*name;
    if (!named.empty()) groups[named].push_back(i);
  }
  return groups;
}

/// Whether these nodes are few enough, and their ranks, to share memory.
bool fits_memory(const std::vector<const Node*>& nodes, const Places& places) {
  std::size_t ranks = 0;
  for (const std::size_t i : places) ranks += static_cast<std::size_t>(nodes[i]->offer.workers);
  return places.size() > 1 && places.size() <= memory_parts_max && ranks <= segment_ranks_max &&
         !nodes[places.front()]->offer.share.lends_at.empty();
}

}  // namespace

std::vector<Housemates> find_housemates(const std::vector<const Node*>& nodes) {
  std::vector<Housemates> found(nodes.size());
  std::vector<CommonMemory::Part> parts;
  for (int first = 0; const Node* node : nodes) {
    parts.push_back({first, node->offer.workers});
    first += node->offer.workers;
  }
  for (const auto& [kernel, places] : alike(nodes, &HostShare::kernel)) {
    std::vector<Tenants> tenants;
    for (const std::size_t i : places) {
      tenants.push_back({nodes[i]->offer.workers, nodes[i]->offer.share.processors});
    }
    const auto crowded = find_crowded(tenants);
    for (std::size_t k = 0; k < places.size(); ++k) found[places[k]].crowded = crowded[k];
  }
  for (const auto& [memory, places] : alike(nodes, &HostShare::memory)) {
    if (!fits_memory(nodes, places)) continue;
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
  }
  return found;
}

}  // namespace dlaunch::rendezvous
