#pragma once

#include "launcher/report/snapshot.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::launcher {

/// A call in which some ranks wait.
struct CallWait {
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;  ///< 0: a message, which is a call of its rank alone.
  int rank = 0;                ///< The rank that came first.
  std::uint64_t turn = 0;      ///< The number of its wait, which tells messages apart.
  int whom = -1;               ///< The rank of the world it waits for; -1: any.
  int group_size = 0;
  FlightCall::Terms terms{};  ///< The terms of that call.
  std::string call;           ///< "all_reduce #5 (sum, f32, 8 elements) [train.cpp:42]".
  Clock::duration waited{};
  int waiting = 0;       ///< Number of ranks that have waited long enough to count.
  bool is_over = false;  ///< One of them has waited for longer than the limit.
  /// For a message that is reported: the ring of ranks that wait in messages for each other, this
  /// one first; else empty.
  std::vector<int> ring = {};
};

/// Merges the waits of several nodes.
std::vector<CallWait> merge_waits(std::vector<CallWait> waits);
/// The waits that a node reports to the others: those in which most ranks wait.
std::vector<CallWait> foremost(std::vector<CallWait> waits);

/// The relation of some ranks, such as one node's, to a call that is stuck.
struct StuckPart {
  std::vector<int> waiting;
  /// Each absent rank, with what it was last seen doing.
  std::vector<std::pair<int, std::string>> absent;
  int known = 0;  ///< Number of the group's members that were looked at.

  void add(const StuckPart& others);
  /// The same without words about ranks for which a report has no room.
  void shorten();
};

/// The ranks that wait in a call, and those absent; as one node knows it, or all.
struct StuckCall : StuckPart {
  CallWait wait;
  std::vector<std::string> silent;  ///< Nodes that could not be asked, as sentences.
};

/// "all_reduce #5 [train.cpp:42] has been waiting for 5.0 s: ranks 0-2 wait; absent: rank 3 (in no
/// call for 5.2 s, after barrier #4 [train.cpp:40])".
std::string to_string(const StuckCall& stuck);

/// Describes the relation of these ranks to the call of `wait`.
StuckCall describe(const CallWait& wait, const std::vector<RankSight>& ranks, int world_size,
                   Clock::time_point now);

/// The rank's activity, as far as it can be seen from outside.
std::string doing_text(const RankSight& rank, Clock::time_point now);

/// Fills in the names for readers without the ring.
void add_names(RankSight& rank, Clock::time_point now);

/// Measures how long the calls of a node's ranks wait. The waits' turns show whether a call moves;
/// the workers' own times are not used. Pure, reads no clock.
class WaitTimes {
 public:
  /// `limit` is for calls of communicators that have no limit of their own; 0: those have none.
  explicit WaitTimes(Clock::duration limit) : limit_(limit) {}

  std::vector<CallWait> look(const std::vector<RankSight>& ranks, Clock::time_point now);

 private:
  using Key = std::pair<int, std::uint64_t>;  ///< Rank and turn.
  Clock::duration limit_;
  std::map<Key, Clock::time_point> seen_;
};

/// Finds the call that is stuck, and reports each once.
class StuckJudge {
 public:
  /// A call that has become stuck, with its ring, or nullopt. After a report, other calls are
  /// reported only once that one has gone on.
  std::optional<CallWait> judge(const std::vector<CallWait>& waits);
  /// Whether the reported call is still stuck.
  bool is_stuck() const { return told_.has_value(); }
  /// The call has gone on, after all.
  void forget() { told_.reset(); }

 private:
  std::optional<CallWait> told_;
};

/// The sentence about two ranks that made different calls under one number, one of which has
/// returned and so cannot report it. nullopt if the logs show no such calls.
std::optional<std::string> find_disagreement(const std::vector<RankSight>& ranks);

}  // namespace dlaunch::launcher
