#pragma once

#include "launcher/job/core/supervisor.hpp"
#include "rendezvous/rounds/rounds.hpp"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// The seat of a node whose rendezvous is at the other end of a connection. Decides what the
/// rendezvous is told, and told again after a break; which of its messages count; and when the node
/// gives it up. Pure.
namespace dlaunch::launcher::seat {

// ---- What happens, beside what the rendezvous says ----

/// The connection stands, the first time or again.
struct Welcomed {
  rendezvous::NodeOffer offer = {};  ///< This node's; the first one counts.
};
/// There is no connection; another try follows.
struct Trouble {
  std::string sentence;
  Clock::time_point since;  ///< When the connection was last good, or when the first try began.
  /// Why this node does not host the job itself, if that explains the trouble.
  std::string hint = {};
};
/// The time of Wake has come.
struct Due {
  std::optional<Trouble> trouble = std::nullopt;
};
/// The agent says it of its workers, or leaves.
struct Said {
  rendezvous::Event what;
};
/// The agent takes another seat, and this one says nothing more.
struct Withdrawn {};

using Event = std::variant<Welcomed, Trouble, Due, Said, Withdrawn, rendezvous::Admitted,
                           rendezvous::Succession, rendezvous::Refuse, rendezvous::Stop,
                           rendezvous::RanksLost, rendezvous::Finish>;

// ---- What is to be done, in order. The rendezvous is told its events, in vain while there is no
// ---- connection; of its effects the agent hears Admit, RanksLost and Standing as they are. ----

/// The agent hears that this epoch's workers are to be ended.
struct Order {
  std::uint64_t epoch = 0;
  StopOrder::Manner manner = StopOrder::Manner::at_once;
};
/// The agent hears that what was asked of other nodes may have been lost.
struct Reconnected {};
/// Due is wanted at this time; it replaces an earlier wish.
struct Wake {
  Clock::time_point at;
};
/// The agent hears the end. `judged`: from all nodes' facts; else this node has no part in the job.
struct Finished {
  rendezvous::Finish end;
  bool judged = false;
};
/// The connection is to be closed.
struct Close {};
/// The agent hears that the epoch's store is gone with its host.
struct LoseStore {
  std::string why;
};
/// The connection is to be made to this address instead.
struct GoTo {
  std::string address;
};
/// This node is to host the rendezvous, and the connection leads there.
struct HostHere {
  rendezvous::Takeover takeover;
};

using Effect =
    std::variant<rendezvous::Event, Order, Reconnected, Wake, Finished, Close, LoseStore, GoTo,
                 HostHere, rendezvous::Admit, rendezvous::RanksLost, rendezvous::Standing>;
using Effects = std::vector<Effect>;

struct Rules {
  rendezvous::JobRules job;
  Clock::duration heartbeat{};
  bool hosts = false;  ///< The rendezvous is in this process.
  std::string peer;    ///< Its name, for messages.
};

/// Total: every event has an answer in every state. Not thread-safe.
class SeatCore {
 public:
  explicit SeatCore(Rules rules)
      : rules_(std::move(rules)), hosts_(rules_.hosts), peer_(rules_.peer) {}

  Effects step(const Event& event, Clock::time_point now);

  /// No rendezvous has answered yet.
  bool is_coming() const { return std::holds_alternative<Coming>(state_); }
  /// The node has left this seat, or lost it.
  bool is_over() const { return std::holds_alternative<Over>(state_); }
  /// The host is lost, and no other one has given this node a place yet.
  bool is_moving() const { return moving_.has_value(); }

 private:
  struct Coming {};
  struct Waiting {};  ///< For an admission.
  /// The epoch whose ranks this node holds.
  struct Holding {
    enum class Workers { at_work, evicted, ended };
    /// How they ended, for as long as only this node knows.
    struct End {
      std::string text;  ///< "all workers here have ended (rank 3 on h2 exited with 5)".
      /// This node's should nobody ever be told; nullopt: none has failed here, and others may
      /// still run.
      std::optional<int> exit_code = std::nullopt;
      Clock::time_point at{};
      bool told = false;  ///< The user knows that nobody can be told.
    };
    rendezvous::Holding place;
    std::optional<rendezvous::HostPlace> host;  ///< The node that hosts, as far as it has ranks.
    bool hosted = false;                        ///< By another node: without it the job is over.
    Workers workers = Workers::at_work;         ///< evicted: once they are gone we join anew.
    std::optional<End> end = std::nullopt;
    std::vector<rendezvous::Event> told = {};  ///< Events to be repeated after a break.
    std::string stall = {};  ///< "this node stood still for 61 s"; empty where it did not.
  };
  struct Over {};
  /// The search for a new host after one is lost.
  struct Moving {
    std::vector<rendezvous::Successor> order;
    std::size_t at = 0;
    std::string why;  ///< "the node that hosts the job is lost: ...".
  };

  void on(const Welcomed& e);
  void on(const Trouble& e);
  void on(const Due& e);
  void on(const Said& e);
  void on(const Withdrawn&);
  void on(const rendezvous::Admitted& e);
  void on(const rendezvous::Succession& e);
  void on(const rendezvous::Refuse& e) { finish({e.exit_code, std::nullopt, e.reason}, false); }
  void on(const rendezvous::Stop& e);
  void on(const rendezvous::RanksLost& e);
  void on(const rendezvous::Finish& e) { finish(e, true); }

  Holding* holding() { return std::get_if<Holding>(&state_); }
  void join();
  void join_anew();
  void note_stall();
  Clock::duration tried_for(Clock::time_point since) const;
  Clock::duration host_patience() const;
  bool host_is_lost(const Trouble& trouble) const;
  bool has_successor() const;
  bool has_stalled(const Trouble& trouble) const;
  void lose_host(const Trouble& trouble);
  void move_on();
  void tell_place();
  void tell_ranks_of_host(const std::string& why);
  void finish_without_host(const Trouble& trouble);
  Holding::End end_of(const rendezvous::WorkersEnded& e) const;
  bool has_waited_to_report(const Trouble& trouble) const;
  void finish_unreported(const Trouble& trouble);
  void tell_trouble(const std::string& sentence, const std::string& whole);
  std::string outlook() const;
  void finish(rendezvous::Finish end, bool judged);
  void tell(const auto& what) {
    effects_.emplace_back(std::in_place_type<rendezvous::Event>, what);
  }
  void say(std::string text) { effects_.push_back(rendezvous::Standing{0, std::move(text)}); }

  const Rules rules_;
  bool hosts_ = false;  ///< The rendezvous is in this process by now.
  std::string peer_;
  rendezvous::Succession succession_;
  std::optional<Moving> moving_;
  std::variant<Coming, Waiting, Holding, Over> state_;
  rendezvous::NodeOffer offer_;
  std::string told_trouble_;  ///< Empty while all is well.
  Clock::time_point beaten_{}, next_beat_ = Clock::time_point::max();
  Clock::time_point stalled_until_{};  ///< When the last standstill of this node ended.

  Clock::time_point now_{};  ///< Time of the event being answered.
  Effects effects_;          ///< Effects of the event being answered.
};

}  // namespace dlaunch::launcher::seat
