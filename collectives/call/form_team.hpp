#pragma once

#include "collectives/algorithms/by_node.hpp"
#include "collectives/call/call.hpp"
#include "collectives/transport/links.hpp"
#include "collectives/transport/shm/team.hpp"

#include <memory>

namespace dlaunch {

/// The team of the group's ranks, if all of them have mapped the same segment; null on all of them
/// if not. Every rank calls it, in the group's first collective, which is `call`: it waits as that
/// does. The first rank makes the team's memory and tells the others where it is, through the
/// segment; the store is asked only about ranks that do not appear there.
std::unique_ptr<transport::Team> form_team(Call& call, transport::Links& links, const Group& group);

/// The nodes of a group that has no team of all: ranks of one segment are on one node and have a
/// team of their own there, if all of the group that may map it have; any other rank is a node by
/// itself. Null on all ranks if all are. Every rank calls it, as form_team, which came before.
std::unique_ptr<algorithms::by_node::Nodes> form_nodes(Call& call, transport::Links& links,
                                                       const Group& group);

}  // namespace dlaunch
