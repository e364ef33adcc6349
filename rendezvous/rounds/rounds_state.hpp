#pragma once

#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The inside of Rounds, for the files that implement it and nobody else: rounds.cpp takes events
/// and keeps time, rounds_join.cpp judges who comes, rounds_second_job.cpp whether it is of this
/// job at all, rounds_close.cpp closes a round and gives out ranks, rounds_end.cpp judges an
/// epoch's end, rounds_text.cpp says how things stand.
namespace dlaunch::rendezvous {

/// A node's place in an epoch, and what it has done there.
struct Place {
  std::optional<Admission> admission;
  std::optional<Stop> order;  ///< It was told to stop.
  std::optional<WorkersEnded> end;
  bool confirmed = false;  ///< It has said that it holds its place.
};

struct Node : Place {
  Session session = 0;
  NodeOffer offer;
  Clock::time_point last_heard;
  std::optional<Clock::time_point> gone;  ///< Its connection is broken since then.

  bool member() const { return admission.has_value(); }
  void take(Place place) { static_cast<Place&>(*this) = std::move(place); }
};

/// All that is known of an epoch's ranks.
struct Evidence {
  Facts facts;
  std::set<int> told;  ///< Ranks of whose end all have heard.
  std::map<int, RankDetails> details;
  std::map<int, std::string> hosts;  ///< For ranks that failed: their node may be lost since.
};

/// The cause that ended an epoch, or is about to: the first thing that happened counts.
enum class EndCause { none, failure, loss, arrival, leave };
/// How the members of an epoch are told to end for it.
Stop::Cause manner_of(EndCause why);

/// All that is known of an epoch since its round was closed. The next one begins with another
/// value.
struct EpochState {
  int world_size = 0;
  int members = 0;  ///< How many nodes the epoch has, the lost included.
  int running = 0;  ///< Members that are here and have not ended.

  EndCause cause = EndCause::none;
  std::string cause_reason;
  Clock::time_point caused_at;
  /// A node was lost of which nothing had been heard since before the cause.
  bool lost_before = false;
  Session caused_by = 0;  ///< The node that told of it; 0: none.
  Evidence evidence;
  struct Left {
    int exit_code = 0;
    std::string reason;  ///< "node b left: stopped by SIGTERM".
  };
  std::optional<Left> left;  ///< The first member that went, on purpose.
  std::size_t losses_told = 0;
  std::size_t exits_told = 0;       ///< With 0.
  std::vector<RanksLost> repeated;  ///< The first of them, to be said again.
  std::vector<WorkersEnded> ends;   ///< In the order of arrival.
  CallLedger ledger;                ///< As far as they have ended.

  // It began before this rendezvous did.
  struct Adopted {
    Session session = 0;
    int first_rank = 0;
    int workers = 0;
  };
  std::map<int, Adopted> adopted;  ///< By node rank.
  std::set<int> awaited;           ///< Node ranks that are not back yet.
  std::optional<Clock::time_point> awaited_until;
};

/// Why a node is told to join anew, most often.
constexpr const char* joins_anew_for =
    "this node was silent for too long, and the job went on without it";

/// The first node that was lost, of an epoch or while the next round gathers.
struct Loss {
  Clock::time_point at;
  std::string reason;  ///< "node b is lost: silent for 5.0 s".
};

struct Rounds::State : EpochState {
  using Phase = JobStatus::State;

  // ---- Events ----
  void on(const Join& e);
  void on(const Leave& e);
  void on(const Disconnected& e);
  void on(const Heartbeat& e);
  void on(const WorkerFailed& e);
  void on(const WorkerLeft& e);
  void on(const WorkersEnded& e);
  void on(const CallsMade& e);
  void on(const Tick&);

  void forgive_own_stall(Clock::time_point before);
  Clock::duration late_at() const;
  void check_leases();
  std::string break_text(const Node& node) const;

  // ---- Coming ----
  void join_again(Node& node, const Join& e);
  void welcome(const Node& node);
  std::optional<Refuse> objection(const Join& e) const;
  std::optional<Refuse> claim_objection(const Join& e) const;
  /// The sessions that must go for this node to come: it was started again.
  std::vector<Session> predecessors(const NodeOffer& offer) const;
  /// Its connection is broken, or it is silent for long.
  bool absent(const Node& node) const;
  /// The rendezvous was started anew and takes the node's epoch up again.
  bool adoptable(const Holding& held) const;
  const Node* holder_of(int node_rank) const;
  bool comes_back(const Holding& held) const;
  void yield_to(const Join& e);
  void start_over(const Holding& held);
  std::optional<std::string> contradiction(const Join& e) const;
  void begin_adoption(const Holding& held);
  void adopt(Node& node, const Holding& held);
  void all_are_back();
  void give_up_awaited();

  // ---- A second job under the same id ----
  std::optional<std::string> of_second_job(const NodeOffer& offer) const;
  std::optional<std::string> useless(const NodeOffer& offer) const;
  Refuse second_job(Session session, const std::string& why) const;
  bool is_ours(const NodeOffer& offer) const;
  void note_launch(const NodeOffer& offer);
  void learn_launch(const NodeOffer& offer);
  void turn_away_second_job();
  std::string job_here() const;
  std::string or_another_job() const;

  // ---- Going ----
  void lose(const std::vector<std::pair<Session, std::string>>& whom);
  void tell_ranks_lost(std::vector<RanksLost> losses);
  void tell_evicted(Session session, std::uint64_t of_epoch, std::string why = joins_anew_for);

  // ---- Rounds ----
  /// Closes the round, waits on, or gives up: whatever is due now.
  void consider_gathering(Session newcomer = 0);
  void begin_gathering();
  void begin_epoch();
  void give_up_gathering();
  void close();
  std::vector<Node*> choose();
  std::vector<Node*> in_rank_order(const std::vector<Node*>& chosen) const;

  // ---- How things stand ----
  void stand(std::string sentence);
  void stand_gathering(Session newcomer = 0);
  std::string count_text() const;
  std::string wait_text() const;
  std::string missing_ranks() const;
  std::string names_here() const;

  // ---- The end of an epoch ----
  /// The members but `except`, which knows, are told to stop.
  void begin_end(EndCause why, const std::string& reason, Session except = 0);
  /// The first counts.
  void note_loss(const std::string& text);
  void note_leaving();
  void judge_if_ended();
  std::optional<Verdict> find_cause() const;
  void judge();
  EndCause cause_at_end() const;
  std::optional<std::string> unheard_disagreement() const;
  void judge_failure();
  void judge_loss();
  void judge_leave();
  void finish_without_host(int exit_code, const std::string& reason);
  const Node* node_of_rank(int rank) const;
  bool is_own(const Node& node, int rank) const;
  void take_facts(const Node& node, const WorkersEnded& e);
  bool is_first_news(const Node& node, int rank);
  /// "rank 3 on h2".
  std::string name_of_rank(int rank) const;
  std::string text_of(const Verdict& verdict) const;
  /// Ranks fail that blame others, of whom nothing bad is known.
  bool is_open(const Verdict& verdict) const;
  void finish_failed();
  void gather_or_give_up(std::string why);
  void finish(int exit_code, std::string sentence, std::optional<Verdict> why = std::nullopt);

  template <class Effect>
  void put(Effect effect) {
    effects.emplace_back(std::in_place_type<Effect>, std::move(effect));
  }
  Node& insert(Node node);
  Node remove(Session session);
  Node* find(Session session);
  Node* member_of(Session session, std::uint64_t of_epoch);
  void heard(Node& node);
  void check_by(Clock::time_point when);
  bool elastic() const { return rules.nodes_min < rules.nodes_max; }
  /// Whether another node may take the place of one that is lost.
  bool replaceable() const { return elastic() || attempt < rules.max_restarts; }
  /// A node that left on purpose is not waited for: enough others are here, or the job ends.
  bool lacks_who_left() const { return left && (!elastic() || count() < rules.nodes_min); }
  int count() const { return static_cast<int>(nodes.size()); }

  Phase phase = Phase::gathering;
  JobRules rules;
  bool has_rules = false;
  std::string rules_from;                  ///< The node that brought them.
  std::string name;                        ///< The job's.
  std::optional<Clock::time_point> begun;  ///< Its first epoch here.
  /// The values that all nodes of all its epochs here had in common; others are 0.
  std::optional<Launch> launch;
  Incarnation use;
  std::uint64_t incarnation = 0;  ///< The epoch's incarnation.
  std::uint64_t taken_up = 0;     ///< The last whose nodes have come back; 0: none.
  std::uint64_t last_epoch = 0;   ///< The last of earlier incarnations, as far as is known.
  std::uint64_t epoch = 0;
  std::uint64_t epoch_seen = 0;  ///< The highest of any node, ever: the next one is higher.
  int attempt = 0;
  std::map<Session, Node> nodes;
  std::map<std::string, Session> by_id;
  std::map<int, Session> by_hint;
  int broken = 0;  ///< How many of them have no connection now.
  struct Lost {
    std::uint64_t epoch = 0;
    std::optional<Join> waiting;  ///< It had no place in an epoch, and holds nothing.
  };
  std::map<Session, Lost> lost;        ///< Until they speak again.
  std::map<std::string, int> rank_of;  ///< Node ranks of the last epoch, by id.

  bool re_forming = false;  ///< Not the job's first round: no last call.
  std::optional<Clock::time_point> join_deadline;
  std::optional<Clock::time_point> last_call;
  /// A node has left: until then others may, too, and no round closes.
  std::optional<Clock::time_point> leaving_until;
  std::string again_for;           ///< Why the last epoch ended, where the job goes on.
  std::optional<Loss> first_loss;  ///< Since the round was closed.

  std::string standing;
  std::string standing_key;                       ///< The part about the nodes, without the clock.
  std::size_t calls_said = 0;                     ///< The steps said of the last call's countdown.
  std::optional<Clock::time_point> told;          ///< When it was last told to all.
  std::optional<Clock::time_point> standing_due;  ///< When it is to be told next.
  std::optional<Finish> finish_said;
  std::optional<Clock::time_point> lease_check;  ///< No lease ends before this.
  std::optional<Clock::time_point> asked;        ///< For when we asked for a tick.
  std::optional<Clock::time_point> woke;         ///< Our process stood still until then,
  Clock::duration slept{};                       ///< and for so long.

  Clock::time_point now;  ///< The time of the event being answered.
  Effects effects;        ///< The answer to the event.
};

/// "3 nodes", "2 to 4 nodes".
std::string nodes_text(const JobRules& rules);
/// node2 before node10.
bool natural_less(std::string_view a, std::string_view b);
/// "a, b and c", the first few of them.
std::string list_text(const std::vector<std::string>& names);

}  // namespace dlaunch::rendezvous
