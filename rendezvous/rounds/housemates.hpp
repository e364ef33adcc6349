#pragma once

#include "rendezvous/rounds/nodes.hpp"

#include <vector>

namespace dlaunch::rendezvous {

/// What a node's admission says of the other nodes of its host.
struct Housemates {
  bool crowded = false;
  CommonMemory memory = {};
};

/// For each of a round's nodes, which are given by rank. Those that have memory in common are
/// crowded alike, since their ranks wait for each other in it.
std::vector<Housemates> find_housemates(const std::vector<const Node*>& nodes);

}  // namespace dlaunch::rendezvous
