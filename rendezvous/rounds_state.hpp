#pragma once

#include "rendezvous/rounds.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

/// What is behind Rounds, for the files that implement it and nobody else: rounds.cpp takes events,
/// rounds_close.cpp closes a round and gives out ranks, rounds_end.cpp judges an epoch's end.
namespace dlaunch::rendezvous {

struct Node {
  Session session = 0;
  NodeOffer offer;
  Clock::time_point joined;
  Clock::time_point last_heard;
  std::optional<Clock::time_point> gone;  ///< Its connection is broken since then.

  // Of the epoch it is a member of.
  std::optional<Admission> admission;
  std::optional<Stop> order;  ///< It was told to stop.
  std::optional<WorkersEnded> end;

  bool member() const { return admission.has_value(); }
};

/// What ended an epoch, or is about to: the first thing that happened counts.
enum class EndCause { none, failure, loss, arrival, leave };

struct Rounds::State {
  // ---- Events ----
  void on(const Join& e);
  void on(const Leave& e);
  void on(const Disconnected& e);
  void on(const Heartbeat& e);
  void on(const WorkerFailed& e);
  void on(const WorkersEnded& e);
  void on(const Tick&);

  void forgive_own_stall();
  void join_again(Node& node, const Join& e);
  std::optional<Refuse> objection(const Join& e);
  void adopt(const Join& e);
  void evict(Session session, std::uint64_t epoch);
  void lose(Session session, const std::string& cause);

  // ---- Rounds ----
  /// Closes the round, waits on, or gives up: whatever is due now.
  void consider_gathering(Session newcomer = 0);
  void close();
  std::vector<Node*> choose();
  void give_ranks(std::vector<Node*>& nodes);
  void begin_gathering();
  std::string missing() const;
  void stand(std::string sentence);
  void stand_gathering(Session newcomer = 0);

  // ---- The end of an epoch ----
  void stop_members(Stop::Cause cause, const std::string& reason, Session except);
  /// The members but `except`, which knows, are told to stop.
  void begin_end(EndCause why, const std::string& reason, Session except = 0);
  /// All members have ended: another epoch, or the end.
  void judge();
  void judge_failure();
  void gather_or_give_up();
  void finish(int exit_code, std::optional<int> root_cause, std::string sentence);

  Node& insert(Node node);
  Node remove(Session session);
  Node* find(Session session);
  Node* member_of(Session session, std::uint64_t epoch);
  std::size_t alive() const { return nodes.size(); }
  bool elastic() const { return rules.nodes_min < rules.nodes_max; }

  using Phase = JobStatus::State;
  Phase phase = Phase::gathering;
  JobRules rules;
  bool has_rules = false;
  std::uint64_t epoch = 0;
  int attempt = 0;
  int world_size = 0;
  std::map<Session, Node> nodes;
  std::map<std::string, Session> by_id;
  std::map<int, Session> by_hint;
  std::set<Session> evicted;
  std::map<std::string, int> rank_of;  ///< Node ranks of the last epoch, by id.
  std::size_t members = 0;             ///< How many nodes the epoch has, the lost included.
  std::size_t running = 0;             ///< Members that are here and have not ended.

  bool re_forming = false;  ///< Not the job's first round: no last call.
  bool after_loss = false;  ///< What is missing was lost.
  std::optional<Clock::time_point> join_deadline;
  std::optional<Clock::time_point> last_call;
  std::size_t calls_said = 0;  ///< Of the countdown.

  EndCause cause = EndCause::none;
  std::string cause_reason;
  int leave_code = 0;
  bool closes = false;
  std::vector<WorkersEnded> ends;  ///< Of this epoch, in the order of arrival.

  std::string standing;
  std::optional<Clock::time_point> told;          ///< When it was last told to all.
  std::optional<Clock::time_point> standing_due;  ///< When it is to be told next.
  std::optional<Finish> verdict;
  std::optional<Clock::time_point> lease_check;  ///< No lease ends before this.
  std::optional<Clock::time_point> asked;        ///< For when we asked for a tick.

  Clock::time_point now;  ///< Of the event being answered.
  Effects effects;        ///< Of the event being answered.
};

}  // namespace dlaunch::rendezvous
