#pragma once

#include <dlaunch/store.hpp>

#include <cstdint>
#include <optional>

namespace dlaunch::transport {

/// The place where a rank runs, by its own word.
struct Location {
  std::int32_t node = 0;      ///< WorldInfo::node_rank.
  std::int32_t local = 0;     ///< Its rank on that node.
  std::uint64_t segment = 0;  ///< Id of the segment that it has mapped; 0: none.
  bool operator==(const Location&) const = default;
};

/// Makes it known to the other ranks of the world. Throws what the store throws.
void announce(Store& store, int world_rank, const Location& location);
/// nullopt: it has not been announced yet. Throws Error{internal} if something else is there.
std::optional<Location> find_location(Store& store, int world_rank);

}  // namespace dlaunch::transport
