#pragma once

#include "tests/support/ranks.hpp"

#include <memory>
#include <vector>

namespace dlaunch::testing {

/// Memberships for run_ranks: the ranks of each node share a segment, if there are several. The
/// nodes have ranks 0 to n-1 among them.
inline std::vector<std::shared_ptr<FakeMembership>> mixed_memberships(
    const std::vector<std::vector<std::int32_t>>& nodes) {
  std::size_t ranks = 0;
  for (const auto& node : nodes) ranks += node.size();
  std::vector<std::shared_ptr<FakeMembership>> memberships(ranks);
  for (const auto& node : nodes) {
    SegmentPlan plan;
    plan.world_ranks = node;
    plan.arena_bytes = 64u << 20;
    const auto segment = Segment::create(plan);
    for (const std::int32_t rank : node) {
      auto& membership = memberships[static_cast<std::size_t>(rank)];
      membership = std::make_shared<FakeMembership>();
      membership->share(segment);
    }
  }
  return memberships;
}

}  // namespace dlaunch::testing
