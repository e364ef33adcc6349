#pragma once

#include "rendezvous/rounds/admission.hpp"
#include "runtime/base/departure.hpp"
#include "runtime/base/liveness.hpp"
#include "runtime/base/verdict.hpp"
#include "runtime/segment/call_ledger.hpp"
#include "runtime/segment/processors.hpp"

#include <dlaunch/error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The pure core of the rendezvous: decides which nodes make up a job's world, and what follows
/// when one fails, leaves, is lost or comes late. State, event and time in, effects out; it reads
/// no clock, no socket and no environment.
namespace dlaunch::rendezvous {

/// Names one agent process: random, chosen by the agent, the same over reconnects. An agent that
/// was started anew has another one.
using Session = std::uint64_t;

/// The pauses before restarts after failures that follow soon after their starts: none after the
/// first of these, then `first`, which doubles with each up to `longest`. A run that lasted for
/// `longest` ends the row.
struct RestartBackoff {
  Clock::duration first{0};  ///< 0: no pauses.
  Clock::duration longest{0};

  bool operator==(const RestartBackoff&) const = default;
};

/// The rules that all nodes of a job must agree on. The first one to join brings it, later ones
/// that differ in the first block are refused.
struct JobRules {
  int nodes_min = 1;
  int nodes_max = 1;
  /// The number of further nodes that may wait, each to take the place of one that is lost or
  /// leaves.
  int spares = 0;
  int max_restarts = 0;
  /// Only restarts within the last so long count against `max_restarts`; 0: all.
  Clock::duration restart_window{0};
  RestartBackoff restart_backoff = {};
  bool continue_on_failure = false;

  Clock::duration join_timeout{};  ///< From the first join of a round.
  Clock::duration last_call{};     ///< From MIN nodes on, in a first round.
  Liveness liveness = {};

  /// The job can do with fewer nodes than it would like.
  bool elastic() const { return nodes_min < nodes_max; }
  /// Whether so many nodes can go on when others are gone, which costs no restart.
  bool goes_on_with(int nodes_here) const {
    return (elastic() || spares > 0) && nodes_here >= nodes_min;
  }
  /// Another node may take over from the one that hosts the rendezvous.
  bool outlives_host() const { return (elastic() || spares > 0) && !continue_on_failure; }
  bool operator==(const JobRules&) const = default;
};

/// The features by which nodes of one launch are told from those of a second job under the same id.
/// 0: not known.
struct Launch {
  std::uint64_t line = 0;   ///< A hash of the program and its arguments.
  std::uint64_t start = 0;  ///< A hash of the scheduler's job that started the node.

  bool operator==(const Launch&) const = default;
};

/// The resources that a node may share with others of its host. The names are only compared; an
/// empty one equals no other.
struct HostShare {
  std::string kernel;     ///< Nodes of one kernel compete for its processors.
  Processors processors;  ///< The processors that the node's ranks may use.
  std::string memory;     ///< Nodes with the same one can map the same memory.
  /// The abstract name at which its agent lends memory; empty: it does not.
  std::string lends_at;

  bool operator==(const HostShare&) const = default;
};

/// A node as it introduces itself.
struct NodeOffer {
  std::string id;    ///< --node-id; unique in the job.
  std::string host;  ///< Its host's name, for messages.
  int workers = 1;
  std::optional<int> rank_hint;  ///< --node-rank: honoured, or the node is refused.
  /// "host:port" of the socket it has bound for PyTorch's store, best first.
  std::vector<std::string> store_addresses;
  Launch launch = {};
  HostShare share = {};

  bool operator==(const NodeOffer&) const = default;
};

// ---- Events ----

struct Join {
  Session session = 0;
  NodeOffer offer;
  JobRules rules;
  std::optional<Holding> holding;
};
/// The node goes, on purpose, and sees to the end of its workers itself.
struct Leave {
  Session session = 0;
  /// A user's signal: 128+n. A job that cannot go on without the node ends with this code.
  int exit_code = 0;
  std::string reason;   ///< "stopped by SIGTERM".
  bool closes = false;  ///< Whether it hosts the rendezvous, so that nobody can go on without it.
  /// Whether the reason concerns all nodes, so that all workers end.
  bool ends_job = false;
};
/// The node's connection broke without a word.
struct Disconnected {
  Session session = 0;
};
/// Anything arrived from the node.
struct Heartbeat {
  Session session = 0;
};
/// The first failure among the node's workers in this epoch: the others are told at once.
struct WorkerFailed {
  Session session = 0;
  std::uint64_t epoch = 0;
  Fact fact;
};
/// One of the node's workers exited with 0 while others of the epoch run; ranks that wait for it,
/// on any node, have to know.
struct WorkerLeft {
  Session session = 0;
  std::uint64_t epoch = 0;
  int rank = 0;  ///< Global.
};
/// Details for people about the rank to blame, shown wherever it is named.
struct RankDetails {
  int rank = 0;
  int local_rank = 0;
  std::string node;  ///< Its node's id, by the rendezvous.
  std::string host;
  std::int64_t pid = 0;
  std::int64_t time_ms = 0;  ///< The time of its end, since 1970; 0 if it was stopped.
  std::string error_file;
  std::string message;                  ///< The message of the exception in its error file.
  std::vector<std::string> last_lines;  ///< The last lines of its stderr.
  bool lines_of_both = false;           ///< They include its stdout.

  bool operator==(const RankDetails&) const = default;
};
/// How a node's workers of an epoch ended. None of their processes is left.
struct WorkersEnded {
  Session session = 0;
  std::uint64_t epoch = 0;
  enum class Outcome { succeeded, failed, stopped, spawn_failed };
  Outcome outcome = Outcome::succeeded;
  int exit_code = 0;
  std::string sentence;  ///< The reason, if no rank is at fault.
  Facts facts = {};      ///< The facts of its ranks.
  /// Details of those of its ranks that may be to blame.
  std::vector<RankDetails> details = {};
};
/// The calls of a node's ranks, if they ended by themselves; before WorkersEnded.
struct CallsMade {
  Session session = 0;
  std::uint64_t epoch = 0;
  std::vector<CommunicatorCalls> communicators;
};
/// A node tells no more facts, and details, than these.
constexpr std::size_t facts_max = 256, details_max = 4;
/// The node has heard of its place in this epoch.
struct TookPlace {
  Session session = 0;
  std::uint64_t epoch = 0;
};
struct Tick {
  /// Since then nothing that was said has left, since a change before it is not durable; nullopt:
  /// all has left.
  std::optional<Clock::time_point> held_since = std::nullopt;
};

// An operator's orders. Their reasons name the operator: "stopped by operator 'ada'".

/// The job ends, with this code where no rank has failed already.
struct StopJob {
  int exit_code = 0;
  std::string reason;
};
/// The epoch that runs goes on to its end, no node is let in, and no further epoch begins. Nothing
/// where none runs.
struct DrainJob {
  std::string reason;
};
/// The node counts as lost. It is refused, now and should it come back.
struct EvictNode {
  Session session = 0;
  std::string reason;
};

using Event = std::variant<Join, Leave, Disconnected, Heartbeat, WorkerFailed, WorkerLeft,
                           WorkersEnded, CallsMade, TookPlace, Tick, StopJob, DrainJob, EvictNode>;

// ---- Effects ----

/// A node's place in an epoch, as the others need it if it hosts the rendezvous.
struct HostPlace {
  std::string id;
  std::string host;
  int first_rank = 0;
  int workers = 1;
};

/// A node that is ready to host the rendezvous in place of the one that does.
struct Successor {
  int node_rank = 0;
  std::string address;  ///< "host:port" of the socket on which it listens already.

  bool operator==(const Successor&) const = default;
};
/// The successors of an epoch, in the order in which they are asked; no more than these.
constexpr std::size_t successors_max = 8;
/// The nodes that are ready to host this epoch's job in place of the one that does.
struct Succession {
  std::uint64_t epoch = 0;
  std::vector<Successor> order;
};
/// A node's place, as it travels to the node.
struct Admitted {
  bool hosted = false;  ///< By a node of the job: its loss is the job's end.
  Admission admission = {};
  std::optional<HostPlace> host = std::nullopt;  ///< That node, where it has ranks of this epoch.
};

struct Admit {
  Session to = 0;
  Admission admission;
};
/// The node may not take part, and why; it ends with `exit_code`.
struct Refuse {
  Session to = 0;
  Errc code = Errc::refused;
  int exit_code = 0;
  std::string reason;
};
/// Its workers of this epoch are to be stopped; then it reports WorkersEnded and waits for the next
/// admission or the end.
struct Stop {
  Session to = 0;
  std::uint64_t epoch = 0;
  enum class Cause {
    failure,     ///< A worker elsewhere failed, or a node is lost: survivors may report first
                 ///< (--failure-grace).
    membership,  ///< A node left or came: stop at once.
    evicted,     ///< This node was given up while it was silent; it must join anew.
  };
  Cause cause = Cause::failure;
  std::string reason;
};
/// These ranks will not come back. Sent to all nodes of the epoch but their own, and again to a
/// node that was not connected at the time.
struct RanksLost {
  std::uint64_t epoch = 0;
  int first_rank = 0;
  int count = 1;
  std::string host;
  Departure how;
  Session except = 0;
  Session to = 0;  ///< 0: all.
};
/// How things stand, for people. Sent when it changes, to all nodes of the job; while many come,
/// once a second and to each newcomer, so that N nodes do not get N sentences each.
struct Standing {
  Session to = 0;        ///< 0: all.
  std::string sentence;  ///< "3 of 4 nodes; missing rank 2; last call in 12 s".
};
/// The job is over; every node exits with this.
struct Finish {
  /// The cause, if no verdict names it.
  enum class Cause : std::uint8_t {
    told,          ///< Only the sentence tells.
    node_lost,     ///< Ranks may have failed because those of a lost node were gone.
    disagreement,  ///< Ranks made different calls, and none of them has noticed.
  };
  int exit_code = 0;
  std::optional<Verdict> verdict;  ///< Set if ranks are to blame.
  std::string sentence;
  std::optional<RankDetails> details = std::nullopt;  ///< Those of the verdict's first rank.
  Cause cause = Cause::told;

  static Finish for_lost_node(std::string sentence);
};

using Effect = std::variant<Admit, Refuse, Stop, RanksLost, Standing, Finish>;
using Effects = std::vector<Effect>;

// ---- What it looks like from outside ----

struct NodeStatus {
  std::string id;
  std::string host;
  enum class State { waiting, running, stopping, ended, silent };
  State state = State::waiting;
  std::optional<int> node_rank;
  int first_rank = 0;
  int workers = 1;
  Clock::time_point last_heard;
};
struct JobStatus {
  enum class State { gathering, running, stopping, finished };
  State state = State::gathering;
  std::uint64_t epoch = 0;
  int attempt = 0;
  int nodes_min = 1;
  int nodes_max = 1;
  int world_size = 0;
  std::string standing;
  std::optional<int> exit_code;
  std::vector<NodeStatus> nodes;
  bool draining = false;  ///< No further epoch begins, by an operator's order.
};

/// Identifies this use of a job's id, among others that there may be.
struct Incarnation {
  std::uint64_t number = 0;
  /// The first incarnation that this rendezvous gave to any job. Nodes of an earlier one, which met
  /// at an earlier rendezvous, may still be at work.
  std::uint64_t first_here = 0;
  /// Until this time they may come back, and take the place of others that have begun meanwhile.
  Clock::time_point return_by = Clock::time_point::max();
  /// No epoch begins with this number or a lower one, even if its nodes come back with a lower one:
  /// the number was given out.
  std::uint64_t epoch_given = 0;
};

/// A node hosts the job in place of one that is lost.
struct Takeover {
  Holding place;               ///< Its own in the last epoch.
  std::string node;            ///< Its id.
  JobRules rules;              ///< The job's.
  std::string why;             ///< "node a is lost: ...".
  Clock::duration patience{};  ///< The time for the other nodes to come.
};
/// The rendezvous is a node's of the job, and another node may take over from it.
struct Hosting {
  std::optional<Takeover> taken_over = std::nullopt;  ///< Set if this one has done so.
};

/// One job's rounds. Total: every event has an answer in every state. Not thread-safe.
class Rounds {
 public:
  /// Epochs begin after `last_epoch`: they only grow, over incarnations too. A place in an earlier
  /// incarnation that began here is nobody's any more. `name` is the job's, for messages. With
  /// `hosting` the job ends where more than half of an epoch's nodes may go on elsewhere.
  explicit Rounds(std::uint64_t last_epoch = 0, Incarnation incarnation = {}, std::string name = {},
                  std::optional<Hosting> hosting = std::nullopt);
  ~Rounds();
  Rounds(Rounds&&) noexcept;
  Rounds& operator=(Rounds&&) noexcept;

  Effects step(const Event& event, Clock::time_point now);
  /// The same in parts, for those who have others to serve meanwhile: as long as it is unfinished,
  /// effects are left that go_on() gives, which seats or tells so many nodes of a closed round. An
  /// event that comes before its end finishes it first.
  Effects begin_step(const Event& event, Clock::time_point now);
  bool unfinished() const;
  Effects go_on(std::size_t nodes);
  /// When a Tick is next needed.
  std::optional<Clock::time_point> next_deadline() const;

  JobStatus status() const;
  std::uint64_t epoch() const;
  /// The epoch's incarnation: our own, or an earlier one whose nodes have come back. Such nodes
  /// know more of it than we do, so the next epoch is of our own incarnation again.
  std::uint64_t incarnation() const;
  /// Whether it is the present incarnation, or one that is over.
  bool has_had(std::uint64_t incarnation) const;
  bool finished() const;
  /// Whether it has joined, and was neither lost nor left.
  bool knows(Session session) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
