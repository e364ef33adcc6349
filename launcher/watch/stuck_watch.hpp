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
  int waiting = 0;       ///< So many ranks have waited for long enough to be counted.
  bool is_over = false;  ///< One of them for longer than the limit.
  /// For a message that is told: the ranks that wait in one for each other, this one first; else
  /// none.
  std::vector<int> ring = {};
};

/// Those of several nodes brought together.
std::vector<CallWait> merge_waits(std::vector<CallWait> waits);
/// As many as one node tells the others: those in which most ranks wait.
std::vector<CallWait> foremost(std::vector<CallWait> waits);

/// What some ranks, such as one node's, have to do with a call that is stuck.
struct StuckPart {
  std::vector<int> waiting;
  std::vector<std::pair<int, std::string>> absent;  ///< And what each was last seen doing.
  int known = 0;  ///< So many members of the group have been looked at.

  void add(const StuckPart& others);
  /// Without the words about ranks for which a report has no room.
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

/// Says what these ranks have to do with the call that `wait` tells of.
StuckCall describe(const CallWait& wait, const std::vector<RankSight>& ranks, int world_size,
                   Clock::time_point now);

/// What this rank does, as far as can be seen from outside.
std::string doing_text(const RankSight& rank, Clock::time_point now);

/// Fills in what those need who have no ring.
void add_names(RankSight& rank, Clock::time_point now);

/// How long the calls of a node's ranks wait: pure, reads no clock. Whether a call moves is told by
/// the waits' turns, not by what the workers say of the time.
class WaitTimes {
 public:
  /// `limit`: for calls of communicators that have none of their own; 0: those are never over it.
  explicit WaitTimes(Clock::duration limit) : limit_(limit) {}

  std::vector<CallWait> look(const std::vector<RankSight>& ranks, Clock::time_point now);

 private:
  using Key = std::pair<int, std::uint64_t>;  ///< Rank and turn.
  Clock::duration limit_;
  std::map<Key, Clock::time_point> seen_;
};

/// Finds the call that is stuck, and tells of each once.
class StuckJudge {
 public:
  /// A call that has become stuck, with its ring, or nothing. After one was told, others are told
  /// only when it has gone on.
  std::optional<CallWait> judge(const std::vector<CallWait>& waits);
  /// The call that was told is still stuck.
  bool is_stuck() const { return told_.has_value(); }
  /// The call has gone on, after all.
  void forget() { told_.reset(); }

 private:
  std::optional<CallWait> told_;
};

/// Two ranks that made different calls of one number, of which one has returned: it cannot tell any
/// more, so this does. nullopt where there is none among the logs' calls.
std::optional<std::string> find_disagreement(const std::vector<RankSight>& ranks);

}  // namespace dlaunch::launcher
