#pragma once

#include "rendezvous/lag/rank_calls.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Judges which ranks of a job are behind the others in their calls. Pure. The one place for it:
/// every page and metric asks here.
namespace dlaunch::rendezvous {

/// A node's last report, in the order of its ranks. Times are the daemon's.
struct NodeCalls {
  int node_rank = 0, first_rank = 0;
  Clock::time_point told;   ///< When the report came.
  Clock::time_point heard;  ///< When the node was last heard of, whatever it said.
  std::shared_ptr<const std::vector<RankCalls>> calls;
};

/// A rank is named once others have been ahead of it for so long.
constexpr auto behind_from = std::chrono::seconds(3);

/// How far some ranks are behind, at least, as of when their node was heard.
struct RankLag {
  std::uint64_t calls = 0;  ///< Number of collectives that others have begun and these have not.
  Clock::duration time{};   ///< Since another rank has gone beyond their last one; 0: not behind.
  std::uint64_t communicator = 0;  ///< The communicator in which they have been behind for longest.

  bool is_behind() const { return time >= behind_from; }
};

/// Some ranks of one node that do the same.
struct RanksSeen {
  int node_rank = 0, first_rank = 0;
  const RankCalls* calls = nullptr;  ///< Never null; it lives as long as the judgement.
  /// Time in the call, or since it ended, as of when the node was heard.
  Clock::duration age{};
  RankLag lag;
};

/// "rank 7 on node b", "ranks 8-15 on node b".
std::string name_of(const RanksSeen& seen, std::string_view node);
/// "in no call for 14 s, after all_reduce #5 [train.cpp:42]".
std::string doing_text(const RanksSeen& seen);

/// The call that the foremost ranks of a communicator have come to.
struct Foremost {
  std::uint64_t communicator = 0, sequence = 0;
  std::string call;        ///< "all_reduce #5 [train.cpp:42]".
  std::int64_t ranks = 0;  ///< Number of ranks that have come to it.
};

struct JobLag {
  std::vector<std::shared_ptr<const std::vector<RankCalls>>> judged;
  std::vector<RanksSeen> ranks;  ///< By node, then rank.
  /// The foremost of each communicator, most ranks first.
  std::vector<Foremost> foremost;
  std::int64_t ranks_behind = 0;

  /// The ranks that are behind, those for longest first.
  std::vector<const RanksSeen*> behind() const;
  /// "rank 7 on node b is 2 calls behind, for 12 s: in no call for 14 s, after all_reduce #5; 15
  /// ranks have come to all_reduce #7". It begins with the ranks' names.
  std::string sentence(const RanksSeen& seen, std::string_view node) const;
};

/// A rank is behind in a communicator if another one has begun a collective that it has not. The
/// time counts from the other's begin to the last moment at which this rank is known not to have
/// begun it. Nodes report at different times, so a rank that only seems behind because its report
/// is older is not.
JobLag judge_lag(std::span<const NodeCalls> nodes, int world_size);

}  // namespace dlaunch::rendezvous
