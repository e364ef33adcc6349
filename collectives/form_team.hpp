#pragma once

#include "collectives/call.hpp"
#include "collectives/transport/links.hpp"
#include "collectives/transport/team.hpp"

#include <memory>

namespace dlaunch {

/// The team of the group's ranks, if all of them have mapped the same segment; null on all of them
/// if not. Every rank calls it, in the group's first collective, which is `call`: it waits as that
/// does. The first rank makes the team's memory and tells the others where it is, through the
/// segment; the store is asked only about ranks that do not appear there.
std::unique_ptr<transport::Team> form_team(Call& call, transport::Links& links, const Group& group);

}  // namespace dlaunch
