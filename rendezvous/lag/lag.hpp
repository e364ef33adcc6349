#pragma once

#include "rendezvous/lag/rank_calls.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Which ranks of a job are behind the others in their calls. Pure. Everybody who shows it asks
/// here.
namespace dlaunch::rendezvous {

/// What a node has told last, in the order of its ranks. Times are the daemon's.
struct NodeCalls {
  int node_rank = 0, first_rank = 0;
  Clock::time_point told;   ///< When it came.
  Clock::time_point heard;  ///< When the node was last heard of, whatever it said.
  std::shared_ptr<const std::vector<RankCalls>> calls;
};

/// A rank that others have been ahead of for so long is named.
constexpr auto behind_from = std::chrono::seconds(3);

/// How far some ranks are behind, at least, as of when their node was heard.
struct RankLag {
  std::uint64_t calls = 0;  ///< Collectives that others have begun, and these not.
  Clock::duration time{};   ///< Since another rank has gone beyond their last one; 0: not behind.
  std::uint64_t communicator = 0;  ///< The communicator in which that is longest.

  bool is_behind() const { return time >= behind_from; }
};

/// Some ranks of one node that do the same.
struct RanksSeen {
  int node_rank = 0, first_rank = 0;
  const RankCalls* calls = nullptr;  ///< Never null; it lives as long as the judgement.
  Clock::duration age{};             ///< In the call, or since it, as of when the node was heard.
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
  std::int64_t ranks = 0;  ///< So many have come to it.
};

struct JobLag {
  std::vector<std::shared_ptr<const std::vector<RankCalls>>> judged;
  std::vector<RanksSeen> ranks;  ///< By node, then rank.
  /// The foremost of each communicator, most ranks first.
  std::vector<Foremost> foremost;
  std::int64_t ranks_behind = 0;

  /// Those that are behind, for longest first.
  std::vector<const RanksSeen*> behind() const;
  /// "rank 7 on node b is 2 calls behind, for 12 s: in no call for 14 s, after all_reduce #5; 15
  /// ranks have come to all_reduce #7". It begins with their name.
  std::string sentence(const RanksSeen& seen, std::string_view node) const;
};

/// A rank is behind in a communicator where another one has begun a collective that it has not. For
/// how long follows from when the other one began it, and until when this one is known not to have:
/// nodes tell at different times, and what only seems behind since it was told earlier is not.
JobLag judge_lag(std::span<const NodeCalls> nodes, int world_size);

}  // namespace dlaunch::rendezvous
