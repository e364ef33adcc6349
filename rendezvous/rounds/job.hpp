#pragma once

#include "rendezvous/rounds/common_launch.hpp"
#include "rendezvous/rounds/epoch_numbers.hpp"
#include "rendezvous/rounds/gathering.hpp"
#include "rendezvous/rounds/judgement.hpp"
#include "rendezvous/rounds/seating.hpp"
#include "rendezvous/rounds/standstill.hpp"
#include "rendezvous/succession/muster.hpp"
#include "runtime/base/phrases.hpp"

#include <variant>

namespace dlaunch::rendezvous {

/// Nodes and why they are lost: "silent for 5.0 s".
using Losses = std::vector<std::pair<Session, std::string>>;

/// The usual reason why a node is told to join anew.
constexpr const char* silent_for_long =
    "this node was silent for too long, and the job went on without it";

/// A job: the values that make it up, and the ways from one phase to the next.
struct JobState {
  // ---- Its phases ----
  bool finished() const { return finish_said.has_value(); }
  Gathering* gathering() { return std::get_if<Gathering>(&phase); }
  const Gathering* gathering() const { return std::get_if<Gathering>(&phase); }
  Epoch* epoch() { return std::get_if<Epoch>(&phase); }
  const Epoch* epoch() const { return std::get_if<Epoch>(&phase); }
  /// Whether an epoch runs and nothing has happened that ends it.
  bool running() const { return !finished() && epoch() && !epoch()->ending(); }
  Phase& current();
  const Legacy& legacy() const;
  /// Its place in the epoch; null where it waits for the next one. Of nodes that are being seated
  /// the second one knows only some.
  const Participant* member(Session session);
  const Participant* member(Session session) const;
  /// Whether another node may take the place of one that is lost.
  bool replaceable() const {
    return rules.elastic() || rules.spares > 0 ||
           RestartBudget::may_have_one(rules, course.attempt);
  }

  /// When a Tick is next needed.
  std::optional<Clock::time_point> next_deadline() const;
  JobStatus status() const;

  // ---- What happens to its nodes ----
  void heard(Session session);
  void note_launch(const NodeOffer& offer);
  /// Whether nothing that is said leaves.
  bool is_mute(const Tick& e);
  /// So much time does not count against anybody.
  void forgive(Clock::duration lost);
  void lose(const Losses& whom);
  /// Tells a node to join anew: others have its ranks by now, or may have them.
  void evict(Session session, std::uint64_t of_epoch, std::string why = silent_for_long);
  void note_leaving();
  /// Tells the others that a node without a place is gone.
  void tell_spare_gone(const std::string& how);
  /// Evicts a node by an operator's order: it is lost, and refused when it comes back.
  void put_out(const EvictNode& order);
  /// The answer to a node that was evicted so.
  std::optional<Refuse> barred(Session session) const;

  // ---- From phase to phase ----
  /// Closes the round, waits on, or gives up: whatever is due now.
  void consider_gathering(Session newcomer = 0);
  void begin(Epoch epoch);
  /// Does a part of what is left to do for the nodes of a round that has closed.
  void go_on(std::size_t count);
  void finish_seating() {
    while (seating) go_on(seating->count());
  }
  /// An event that the epoch does not survive. The first one counts as the cause; when all nodes
  /// have ended the epoch is judged.
  void begin_end(EndCause why, const std::string& reason, Session told_by = 0);
  void judge_if_over();
  void finish(Finish end);
  void stop(const StopJob& order);
  void drain(const DrainJob& order);
  /// Gives the job to the nodes of an earlier incarnation, which have come back.
  void start_over(std::uint64_t incarnation);
  /// Waits for the nodes of a lost host's epoch.
  void take_over(const Takeover& from);
  /// Notes that the node cannot go on elsewhere: it has left, holds nothing, or was replaced.
  void forget_place(Session session);

  // ---- What is said ----
  void stand(std::string sentence) { announcer.stand(std::move(sentence), now); }
  void tell_lost(std::vector<RanksLost> losses);
  template <class Effect>
  void put(Effect effect) {
    announcer.put(std::move(effect));
  }
  /// "the job 'red'".
  std::string name_text() const { return name.empty() ? "the job" : "the job " + in_quotes(name); }

  std::string name;
  JobRules rules;
  /// The job's course so far. Another job under the same id has another one.
  struct Course {
    /// The node that brought the rules; none: the next node brings them.
    std::optional<std::string> rules_from;
    std::optional<Clock::time_point> begun;  ///< The begin of its first epoch here.
    CommonLaunch launch;
    int attempt = 0;
    RestartBudget restarts;
    std::optional<std::string> draining;  ///< The reason why no further epoch begins.
  };
  Course course;
  EpochNumbers numbers;
  Clock::time_point epoch_begun;  ///< The last epoch began then, or was taken up.
  Nodes nodes;
  struct GivenUp {
    std::uint64_t epoch = 0;
    std::optional<Join> waiting;  ///< Its offer, if it had no place in an epoch and holds nothing.
    bool told = false;  ///< It has been told to end its workers, after which it joins anew.
  };
  std::map<Session, GivenUp> given_up;     ///< Nodes that were lost, until they join anew.
  std::map<Session, std::string> evicted;  ///< Why; by an operator's order.
  std::variant<Gathering, Epoch> phase;
  std::optional<Seating> seating;  ///< Set while something is left to do for nodes of the epoch.
  /// The epoch before this one. To free what is known of thousands of nodes takes long, so it is
  /// done after all that others wait for.
  std::optional<Epoch> past;
  std::optional<Finish> finish_said;  ///< Set once the job has ended, which it did in this phase.
  std::optional<Quorum> quorum;       ///< Set if a node hosts the rendezvous.
  std::optional<Muster> muster;       ///< Set from a takeover to the next epoch.
  /// Set while more than half of an epoch's nodes are out of reach, and waited for.
  std::optional<Clock::time_point> outvoted_until;
  Standstill standstill;
  /// Set while nothing that is said leaves: since when.
  std::optional<Clock::time_point> mute_since;
  Announcer announcer;
  Clock::time_point now;  ///< The time of the event being answered.

 private:
  void close();
  void tell_of_epoch();
  void gather(GoesOn next);
  void give_up(const Node& node, const std::optional<Participant>& member);
  bool lacks_spares() const;
  void give_up_for_loss();
  bool is_outvoted();
  bool holds_muster();
};

}  // namespace dlaunch::rendezvous
