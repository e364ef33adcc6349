#pragma once

#include "collectives/algorithms/by_node.hpp"
#include "collectives/call/call.hpp"
#include "collectives/transport/links.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <memory>

namespace dlaunch {

/// Forms the shm group of the group's ranks if all of them have mapped the same segment; otherwise
/// null on all of them. Every rank calls it in the group's first collective, `call`, and waits as
/// that call does. The first rank makes the shm group's memory and tells the others through the
/// segment where it is; the store is asked only about ranks that do not appear there.
std::unique_ptr<transport::ShmGroup> form_shm_group(Call& call, transport::Links& transport,
                                                    const Group& group);

/// The nodes of a group without an shm group of all. Ranks of one segment are on one node and have
/// an shm group there, if all of the group's ranks that may map the segment have done so; any other
/// rank is a node by itself. Null on all ranks if every rank is a node by itself. Every rank calls
/// it, after form_shm_group.
std::unique_ptr<algorithms::by_node::Nodes> form_nodes(Call& call, transport::Links& transport,
                                                       const Group& group);

}  // namespace dlaunch
