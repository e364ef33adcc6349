#pragma once

#include "collectives/algorithms/by_node.hpp"
#include "collectives/call/call.hpp"
#include "collectives/transport/links.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <memory>

namespace dlaunch {

/// The shm group of the group's ranks, if all of them have mapped the same segment; null on all of
/// them if not. Every rank calls it, in the group's first collective, which is `call`: it waits as
/// that does. The first rank makes the shm group's memory and tells the others where it is, through
/// the segment; the store is asked only about ranks that do not appear there.
std::unique_ptr<transport::ShmGroup> form_shm_group(Call& call, transport::Links& transport,
                                                    const Group& group);

/// The nodes of a group that has no shm group of all: ranks of one segment are on one node and have
/// an shm group of their own there, if all of the group that may map it have; any other rank is a
/// node by itself. Null on all ranks if all are. Every rank calls it, as form_shm_group, which came
/// before.
std::unique_ptr<algorithms::by_node::Nodes> form_nodes(Call& call, transport::Links& transport,
                                                       const Group& group);

}  // namespace dlaunch
