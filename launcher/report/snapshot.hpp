#pragma once

#include "runtime/base/text/wall_clock.hpp"
#include "runtime/segment/flight_log.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

/// What a job's workers do at one moment: the value that agents hand to each other and to `dlaunch
/// status`, and from which texts, JSON and pages are made.
namespace dlaunch::launcher {

/// The names of what a call's record holds as numbers; empty where there is none.
struct CallNames {
  std::string op, owner, purpose, dtype, reduction, site, group;
  std::string full;  ///< "all_reduce #3 (sum, f32, 8 elements)".
};

/// The state of one worker. A plain value, save for the ring.
struct RankSight {
  enum class State : std::uint8_t { running, stopped, ended };
  int rank = 0;
  pid_t pid = 0;  ///< Also of one that has ended.
  State state = State::running;
  bool traced = false;  ///< Stopped, but by a debugger.
  bool member = false;  ///< It has joined the world.
  std::string end;      ///< "killed by SIGKILL", "exited with 0"; empty while it runs.
  std::optional<Clock::time_point> ended;
  FlightLog log;
  /// For names in the log; null where there is no shared memory, and in what another process saw.
  const FlightRing* ring = nullptr;

  /// Filled in for those who have no ring: the names of the log's calls and waits, one for one.
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
  std::string standing = {};  ///< What its rendezvous has said last, for people; may be empty.
  std::string stuck = {};     ///< The call that is stuck now, as it was said; empty if none is.
  /// The same moment on the clock of the ranks' times, which is the node's own, and on its wall's.
  Clock::time_point taken = {};
  WallClock::time_point wall = {};
  std::vector<RankSight> ranks = {};
};

/// Those nodes of a job that have answered, in the order of their ranks.
struct JobSnapshot {
  std::vector<NodeSnapshot> nodes;

  /// One that is there already is left out.
  void add(NodeSnapshot node);
  /// Whether any rank has ever recorded a call.
  bool has_calls() const;
  /// The ranks of the world of which nothing is known.
  std::vector<int> missing() const;
  /// It has not begun: its nodes, of which some are known, wait for each other.
  bool is_waiting() const { return !nodes.empty() && nodes.front().world_size == 0; }
  bool is_complete() const { return !nodes.empty() && !is_waiting() && missing().empty(); }
};

}  // namespace dlaunch::launcher
