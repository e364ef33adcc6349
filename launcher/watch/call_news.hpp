#pragma once

#include "launcher/report/snapshot.hpp"
#include "rendezvous/lag/rank_calls.hpp"

#include <optional>
#include <vector>

namespace dlaunch::launcher {

/// What this node's ranks do, as it is told to a dlaunchd (docs/decisions/0056): those that follow
/// each other and do the same are told as one. Empty where none of them records its calls.
std::vector<rendezvous::RankCalls> calls_now(const std::vector<RankSight>& ranks,
                                             Clock::time_point now);

/// When that is told: where it has changed, and not more often than a daemon of so many nodes can
/// bear. Pure, reads no clock.
class CallNews {
 public:
  /// An epoch begins. Its nodes begin to tell one after the other.
  CallNews(int node_rank, int nodes, Clock::time_point now);

  /// Nullopt: nothing is to be told now.
  std::optional<std::vector<rendezvous::RankCalls>> look(const std::vector<RankSight>& ranks,
                                                         Clock::time_point now);
  /// What was told may be lost.
  void forget() { told_.clear(); }

 private:
  Clock::duration every_;
  Clock::time_point next_;
  std::vector<rendezvous::RankCalls> told_;
  Clock::time_point told_at_;
};

}  // namespace dlaunch::launcher
