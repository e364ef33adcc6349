#pragma once

#include "launcher/report/snapshot.hpp"
#include "rendezvous/lag/rank_calls.hpp"

#include <optional>
#include <vector>

namespace dlaunch::launcher {

/// The report to a dlaunchd of what this node's ranks do (docs/decisions/0056). Consecutive ranks
/// that do the same are one entry. Empty where none of them records its calls.
std::vector<rendezvous::RankCalls> calls_now(const std::vector<RankSight>& ranks,
                                             Clock::time_point now);

/// Decides when that report is sent: only after a change, and no more often than the daemon of a
/// job with so many nodes can bear. Pure, reads no clock.
class CallNews {
 public:
  /// An epoch begins. Its nodes begin to tell one after the other.
  CallNews(int node_rank, int nodes, Clock::time_point now);

  /// Nullopt: nothing is to be told now.
  std::optional<std::vector<rendezvous::RankCalls>> look(const std::vector<RankSight>& ranks,
                                                         Clock::time_point now);
  /// Earlier reports may be lost.
  void forget() { told_.clear(); }

 private:
  Clock::duration every_;
  Clock::time_point next_;
  std::vector<rendezvous::RankCalls> told_;
  Clock::time_point told_at_;
};

}  // namespace dlaunch::launcher
