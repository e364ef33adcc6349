#pragma once

#include "rendezvous/rounds/nodes.hpp"

#include <vector>

namespace dlaunch::rendezvous {

/// The part of a node's admission about other nodes of its host.
struct Housemates {
  bool crowded = false;
  CommonMemory memory = {};
};

/// Finds them for each of a round's nodes, which are given by rank. Nodes that share memory are
/// crowded alike, since their ranks wait for each other in it.
std::vector<Housemates> find_housemates(const std::vector<const Node*>& nodes);

}  // namespace dlaunch::rendezvous
