#pragma once

#include "rendezvous/rounds/announcer.hpp"
#include "rendezvous/rounds/epoch.hpp"

#include <array>

namespace dlaunch::rendezvous {

/// The pause before a restart that follows a row of failures.
struct RestartPause {
  Clock::time_point until;
  std::string sentence;  ///< "restarts in 1.6 s: 6 failures within 3 s".
};

/// A round that is being formed: its deadlines, and what people hear of it meanwhile.
class Gathering : public Phase {
 public:
  enum class Step {
    idle,  ///< Nobody is here.
    wait,
    close,
    give_up,
  };

  /// The job's first round: the first node to come sets its deadline.
  Gathering() = default;
  /// A round for the nodes of an epoch that has ended for the reason `again_for`. It does not close
  /// during `pause`.
  Gathering(Legacy of_epoch, std::string again_for, std::optional<RestartPause> pause,
            const JobRules& rules, Clock::time_point now);

  bool first() const { return !again_for_; }
  std::string again_for() const { return again_for_.value_or(""); }
  /// The step that is due now.
  Step step(const Nodes& nodes, const JobRules& rules, Clock::time_point now);
  /// Tells how things stand: all nodes on a change; while many nodes come, all once a second, and
  /// each newcomer at once.
  void tell(Announcer& announcer, Session newcomer, const Nodes& nodes, const JobRules& rules,
            Clock::time_point now);
  /// The end of a job that has too few nodes for this round.
  Finish given_up(const Nodes& nodes, const JobRules& rules) const;
  /// The times at which there may be something to do.
  std::array<std::optional<Clock::time_point>, 5> deadlines(const Nodes& nodes,
                                                            const JobRules& rules) const;
  /// We stood still: every deadline moves.
  void forgive(Clock::duration slept);

 private:
  std::string wait_text(const Nodes& nodes, const JobRules& rules, Clock::time_point now) const;

  std::optional<std::string> again_for_;  ///< Why the last epoch ended.
  std::optional<RestartPause> pause_;
  std::optional<Clock::time_point> join_deadline_;
  std::optional<Clock::time_point> last_call_;
  std::string told_key_;                          ///< The last announcement, without the clock.
  bool newcomers_wait_ = false;                   ///< Some have been told nothing yet.
  std::size_t calls_told_ = 0;                    ///< The steps of the last call's countdown.
  std::optional<Clock::time_point> telling_due_;  ///< When it is to be told next.
};

}  // namespace dlaunch::rendezvous
