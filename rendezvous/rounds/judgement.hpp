#pragma once

#include "rendezvous/rounds/gathering.hpp"

#include <deque>
#include <variant>

namespace dlaunch::rendezvous {

/// Counts a job's restarts, and decides about the next one.
class RestartBudget {
 public:
  /// Whether a failure may be followed by a restart now; `made` counts those of the whole job.
  bool has_one(const JobRules& rules, int made, Clock::time_point now) const;
  /// Whether one may follow now or later.
  static bool may_have_one(const JobRules& rules, int made);
  /// Workers that were started at `began` failed at `failed`, and are to be started again.
  /// \return the pause before that, from `now` on; nullopt: none.
  std::optional<RestartPause> spend(const JobRules& rules, Clock::time_point began,
                                    Clock::time_point failed, Clock::time_point now);

 private:
  std::deque<Clock::time_point> spent_;  ///< Within the window, where there is one.
  /// The number of failures in a row, each soon after its start.
  int quick_failures_ = 0;
  Clock::time_point quick_since_;  ///< The start before the first of these.
};

/// Another round is formed.
struct GoesOn {
  std::string why;
  bool is_restart = false;  ///< Whether it counts as a restart for --max-restarts.
  bool is_news = false;     ///< Whether the reason was not known before.
};
/// The fate of a job when an epoch is over. Others add details of ranks.
using Judgement = std::variant<GoesOn, Finish>;

/// `has_restart`: the budget has one. `nodes_here` counts all that could take part in another
/// round.
Judgement judge(const Epoch& epoch, const JobRules& rules, bool has_restart, int nodes_here);
/// Judges without waiting for the workers' ends: the node that hosts the rendezvous has left, so
/// nobody could tell the others of them, or the job's time is over.
Finish judge_at_once(const Epoch& epoch, int exit_code, const std::string& reason);

}  // namespace dlaunch::rendezvous
