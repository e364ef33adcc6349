#pragma once

#include "runtime/base/text/wall_clock.hpp"
#include "runtime/segment/flight_log.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

/// The state of a job's workers at one moment: the value that agents hand to each other and to
/// `dlaunch status`, and from which texts, JSON and pages are made.
namespace dlaunch::launcher {

/// Names for the numbers in a call's record; empty where there is none.
struct CallNames {
  std::string op, owner, purpose, dtype, reduction, site, group;
  std::string full;  ///< "all_reduce #3 (sum, f32, 8 elements)".
};

/// The state of one worker. A plain value, save for the ring.
struct RankSight {
  enum class State : std::uint8_t { running, stopped, ended };
  int rank = 0;
  pid_t pid = 0;  ///< Kept after the process has ended.
  State state = State::running;
  bool traced = false;  ///< Stopped, but by a debugger.
  bool member = false;  ///< It has joined the world.
  std::string end;      ///< "killed by SIGKILL", "exited with 0"; empty while it runs.
  std::optional<Clock::time_point> ended;
  FlightLog log;
  /// The source of the log's names; null without shared memory, and in another process's snapshot.
  const FlightRing* ring = nullptr;

  /// Filled in for readers without the ring: the names of the log's calls and waits, one for each.
  std::string doing = {};
  std::vector<CallNames> call_names = {}, wait_names = {};
};

/// One node's workers.
struct NodeSnapshot {
  std::string job;
  std::string node;  ///< Its id.
  std::string host;
  pid_t agent = 0;
  int node_rank = 0;
  int node_count = 1;
  std::uint64_t epoch = 0;
  int attempt = 0;
  int world_size = 0;
  std::string standing = {};  ///< The rendezvous' last sentence for people; may be empty.
  std::string stuck = {};     ///< The call that is stuck now, as it was said; empty if none is.
  /// The moment of the snapshot, on the node's own clock, which the ranks' times use, and on its
  /// wall clock.
  Clock::time_point taken = {};
  WallClock::time_point wall = {};
  std::vector<RankSight> ranks = {};
};

/// The nodes of a job that have answered, in the order of their ranks.
struct JobSnapshot {
  std::vector<NodeSnapshot> nodes;

  /// Adds a node, unless it is there already.
  void add(NodeSnapshot node);
  /// Whether any rank has ever recorded a call.
  bool has_calls() const;
  /// The ranks of the world of which nothing is known.
  std::vector<int> missing() const;
  /// Whether the job has not begun: its nodes, of which some are known, wait for each other.
  bool is_waiting() const { return !nodes.empty() && nodes.front().world_size == 0; }
  bool is_complete() const { return !nodes.empty() && !is_waiting() && missing().empty(); }
};

}  // namespace dlaunch::launcher
