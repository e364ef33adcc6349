#pragma once

#include "rendezvous/rounds/nodes.hpp"
#include "rendezvous/rounds/rank_order.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::rendezvous {

/// The part of a node's admission about other nodes of its host.
struct Housemates {
  bool crowded = false;
  CommonMemory memory = {};
};

/// The part of a node's admission that is its own.
struct Place : Holding {
  int local_size = 1;
  Housemates housemates = {};
};

/// A node's place in an epoch, and what it has done there.
struct Participant {
  std::string id;
  std::string host;
  Session session = 0;
  Place place;
  std::optional<Stop> order = std::nullopt;  ///< The order to stop that it was given.
  bool confirmed = false;                    ///< It has said that it holds its place.
  bool ended = false;                        ///< None of its workers is left.

  bool has(int rank) const {
    return rank >= place.first_rank && rank < place.first_rank + place.local_size;
  }
};

/// The nodes of an epoch that began before this rendezvous did, as they come back to it. Empty for
/// an epoch that began here.
struct Comeback {
  struct Place {
    Session session = 0;
    int first_rank = 0;
    int workers = 0;
  };
  std::map<int, Place> places;  ///< The nodes that are back, by node rank.
  std::set<int> awaited;        ///< Node ranks that are not back yet.
  std::optional<Clock::time_point> until;

  static Comeback of_nodes(int count, Clock::time_point until);
  /// Whether no node that is back has one of these ranks.
  bool has_room(int node_rank, int first_rank, int workers) const;
  /// The ranks of which no node has come back: the first of each range, and how many.
  std::vector<std::pair<int, int>> gaps(int world_size) const;
};

/// The loss of the first node, in an epoch or while the next round gathers.
struct Loss {
  Clock::time_point at;
  std::string reason;  ///< "node b is lost: silent for 5.0 s".
};

/// The facts that an epoch hands to the round after it, which adds to them.
struct Legacy {
  NodeRanks rank_of;
  std::optional<Loss> first_loss;
  /// Set when a node has left: until this time others may leave, too, and no round closes.
  std::optional<Clock::time_point> leaving_until;
};

/// One of the two alternating phases of a job. Each has a growing legacy.
class Phase {
 public:
  const Legacy& legacy() const { return legacy_; }
  Legacy release() { return std::move(legacy_); }
  /// Only the first loss is kept.
  void note_loss(Loss loss) {
    if (!legacy_.first_loss) legacy_.first_loss = std::move(loss);
  }
  void note_leaving(Clock::time_point until) { legacy_.leaving_until = until; }
  /// The node had this rank in the epoch before.
  void note_rank(const std::string& id, int node_rank) { legacy_.rank_of[id] = node_rank; }

 protected:
  Legacy legacy_;
};

/// The cause that ended an epoch, or is about to: the first thing that happened counts.
enum class EndCause { failure, loss, arrival, leave };

/// A rank map that runs: its members, what they tell, and what is known of its end. One value,
/// which another one replaces when the next round closes.
class Epoch : public Phase {
 public:
  struct Ending {
    EndCause cause = EndCause::failure;
    std::string reason;
    Clock::time_point at;
    Session told_by = 0;  ///< 0: no node.
    /// Whether a node was lost that had been silent since before the cause.
    bool lost_before = false;
  };
  struct Left {
    int exit_code = 0;
    std::string reason;  ///< "node b left: stopped by SIGTERM".
  };

  /// A closed round, of which no node is seated yet. `common` is what all admissions have in
  /// common.
  explicit Epoch(Admission common);
  /// An epoch that goes on, of which no node is back yet.
  Epoch(const Holding& held, Clock::time_point back_by);

  std::uint64_t number() const { return number_; }
  int world_size() const { return world_size_; }
  int node_count() const { return node_count_; }  ///< The lost included.
  const Comeback& back() const { return back_; }
  const std::optional<Ending>& ending() const { return ending_; }
  /// The first node to go on purpose.
  const std::optional<Left>& left() const { return left_; }
  const std::vector<WorkersEnded>& ends() const { return ends_; }  ///< In the order of arrival.

  // ---- Its members ----
  void seat(const Node& node, Place place);
  /// All nodes of the closed round are seated, and this is all of them, by rank.
  void complete(std::vector<Admission::Entry> roster) { roster_ = std::move(roster); }
  /// Adds a node that has come back to this epoch. It is told to stop if the others were.
  const Participant& take_back(const Node& node, const Holding& held);
  /// The node, where it is at work, has said that it holds its place; else null.
  const Participant* confirm(Session session);
  const Participant* find(Session session) const;
  Admission admission_of(const Participant& member) const;
  const Participant* with_rank(int rank) const;
  /// Removes a node that is gone.
  std::optional<Participant> remove(Session session);
  const std::map<Session, Participant>& members() const { return members_; }
  /// Whether nobody is at work or about to come back.
  bool over() const { return running_ == 0 && back_.awaited.empty(); }

  // ---- What they tell ----
  /// Takes a failure; returns the news for the others, nullopt where there is none.
  std::optional<RanksLost> take_failure(const Participant& member, const WorkerFailed& e);
  std::optional<RanksLost> take_exit(const Participant& member, int rank);
  /// Takes a node's end; returns the end that counts.
  const WorkersEnded& take_end(WorkersEnded e);
  void take_calls(const CallsMade& e);
  void take_leave(int exit_code, const std::string& reason);
  /// The ranks of a node that was at work, and is gone.
  RanksLost lose(const Participant& member, Clock::time_point last_heard, const std::string& why);
  /// The ranks of the nodes that have not come back.
  std::vector<RanksLost> lose_awaited(const std::string& why);
  /// To a program that goes on without failed workers a lost node is as many of them.
  void count_as_failed(Session session, const std::string& why);
  /// The messages about these losses. A program that ends needs no complete list.
  std::vector<RanksLost> worth_telling(std::vector<RanksLost> losses, bool goes_on);
  /// The losses told so far, for a node that may have missed them.
  std::vector<RanksLost> told_again(Session to) const;
  /// The members are told to stop, but for the one that told of the cause.
  std::vector<Stop> begin_end(Ending why);

  /// We stood still: every deadline moves.
  void forgive(Clock::duration slept);

  // ---- What is known of its ranks ----
  std::optional<Verdict> find_cause() const;
  /// The sentence on calls with a root that do not agree: CallLedger::disagreement().
  std::optional<std::string> disagreement() const { return ledger_.disagreement(); }
  /// Whether the failed ranks blame others of which nothing bad is known.
  bool is_open(const Verdict& verdict) const;
  std::string text_of(const Verdict& verdict) const;
  /// "rank 3 on h2".
  std::string name_of_rank(int rank) const;
  std::optional<RankDetails> details_of(int rank) const;

 private:
  /// The order that ends a member for the cause that there is.
  Stop order_for(Session session) const;
  bool is_first_news(const Participant& member, int rank);
  void take_facts(const Participant& member, const WorkersEnded& e);

  std::uint64_t number_ = 0;
  int world_size_ = 0;
  int node_count_ = 0;
  Admission common_;  ///< What all admissions have in common.
  SharedValue<std::vector<Admission::Entry>> roster_;
  Comeback back_;
  std::optional<Ending> ending_;
  std::optional<Left> left_;
  std::vector<WorkersEnded> ends_;
  CallLedger ledger_;  ///< The calls of ranks that have ended.
  std::map<Session, Participant> members_;
  int running_ = 0;  ///< Members that have not ended.
  Facts facts_;
  std::map<int, RankDetails> details_;
  /// Hosts of failed ranks, kept because their node may be lost later.
  std::map<int, std::string> hosts_;
  std::set<int> told_;  ///< Ranks of whose end all have heard.
  std::size_t losses_told_ = 0;
  std::size_t exits_told_ = 0;         ///< Ranks that exited with 0 and were told.
  std::vector<RanksLost> repeatable_;  ///< The first losses, kept to be repeated.
};

}  // namespace dlaunch::rendezvous
