#pragma once

#include "runtime/segment/call_ledger.hpp"
#include "runtime/segment/flight_log.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace dlaunch {

/// What is left of a rank of the node that has ended.
struct RankFlight {
  int rank = 0;                      ///< Rank in the world.
  const FlightRing* ring = nullptr;  ///< For names; null where there is no shared memory.
  const FlightLog* log = nullptr;    ///< The ring's.
};

/// The calls of a node's ranks, which have ended, in the communicators that have ranks on other
/// nodes, too, and in those in which they do not agree: for ranks that agree, one rank's calls.
/// `calls`: of each, so many records of the last ones at most.
std::vector<CommunicatorCalls> calls_made(
    std::span<const RankFlight> ranks, std::size_t calls = std::numeric_limits<std::size_t>::max());

}  // namespace dlaunch
