#pragma once

#include "runtime/segment/call_ledger.hpp"
#include "runtime/segment/flight_log.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace dlaunch {

/// The remains of a rank of the node that has ended.
struct RankFlight {
  int rank = 0;                      ///< Rank in the world.
  const FlightRing* ring = nullptr;  ///< For names; null where there is no shared memory.
  const FlightLog* log = nullptr;    ///< The ring's.
};

/// The calls of a node's ended ranks, in the communicators that have ranks on other nodes, and in
/// those in which they do not agree. Of ranks that agree, one rank's calls stand for all. `calls`:
/// the most records of each one's last calls.
std::vector<CommunicatorCalls> calls_made(
    std::span<const RankFlight> ranks, std::size_t calls = std::numeric_limits<std::size_t>::max());

}  // namespace dlaunch
