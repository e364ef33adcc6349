#pragma once

#include "launcher/watch/stuck_watch.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// What is known of a node's workers at one moment. A plain value, save for the rings its ranks
/// point to.
struct NodeSight {
  std::string job;
  std::string node;  ///< Its id.
  std::string host;
  pid_t agent = 0;
  int node_rank = 0;
  int node_count = 1;
  std::uint64_t epoch = 0;
  int attempt = 0;
  int world_size = 0;
  std::vector<RankSight> ranks;
  std::string stuck;  ///< The call that is stuck now, as this node said it; empty if none is.
};

/// For `dlaunch status`: each rank's pid, state, what it does, and its communicators' last calls.
std::string status_json(const NodeSight& node, Clock::time_point now);
/// For `dlaunch status --flight` and for dumps: every record of every rank.
std::string flight_json(const NodeSight& node, Clock::time_point now);

}  // namespace dlaunch::launcher
