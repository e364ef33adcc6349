#pragma once

#include "rendezvous/rounds/nodes.hpp"
#include "runtime/base/flat_map.hpp"

namespace dlaunch::rendezvous {

/// The ranks of nodes in an epoch, by their ids.
using NodeRanks = FlatMap<std::string, int>;

/// The nodes that make up the next world, at most so many, each at its node rank. `rank_of` tells
/// the ranks of the last epoch.
std::vector<const Node*> rank_order(const Nodes& nodes, const NodeRanks& rank_of, int nodes_max);

}  // namespace dlaunch::rendezvous
