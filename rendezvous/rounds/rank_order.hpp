#pragma once

#include "rendezvous/rounds/nodes.hpp"

namespace dlaunch::rendezvous {

/// The ranks of nodes in an epoch, by their ids.
using NodeRanks = std::map<std::string, int>;

/// The nodes that make up the next world, at most so many, each at its node rank. `rank_of` tells
/// the ranks of the last epoch.
std::vector<const Node*> rank_order(const Nodes& nodes, const NodeRanks& rank_of, int nodes_max);

}  // namespace dlaunch::rendezvous
