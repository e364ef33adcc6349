#pragma once

#include "launcher/stuck_watch.hpp"
#include "rendezvous/call_ledger.hpp"

#include <vector>

namespace dlaunch::launcher {

/// The calls of a node's ranks, which have ended, in the communicators that have ranks on other
/// nodes, too, and in those in which they do not agree: for ranks that agree, one rank's calls.
std::vector<rendezvous::CommunicatorCalls> calls_made(const std::vector<RankSight>& ranks);

}  // namespace dlaunch::launcher
