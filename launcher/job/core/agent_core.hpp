#pragma once

#include "launcher/job/core/supervisor.hpp"
#include "launcher/request/stop_signals.hpp"

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

/// The life of an agent, from its first admission to its end: decides what the agent does next when
/// the rendezvous or the user has spoken, or its last worker has ended. The supervisor decides
/// about the workers of one attempt. Pure.
namespace dlaunch::launcher::life {

/// An epoch within one use of the job's id.
struct EpochName {
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;

  bool operator==(const EpochName&) const = default;
};

// ---- What happens ----

/// A round is closed, and this node has a place in it.
struct Admitted {
  EpochName epoch;
};
/// It is known where the epoch's node rank 0 is reached: its workers can be started.
struct Placed {
  EpochName epoch;
};
/// --node-check has failed, so no worker of the epoch is started here. No epoch: the check came
/// before joining.
struct Unfit {
  EpochName epoch;
};
/// The rendezvous wants the epoch's workers ended.
struct Ordered {
  std::uint64_t epoch = 0;
  StopOrder::Manner manner = StopOrder::Manner::at_once;
};
/// The job is over, for all nodes or for this one.
struct JobOver {
  int exit_code = 0;
  bool node_lost = false;  ///< The ranks that wait for those of a lost node have just been told.
};
/// A signal that ends the job came, and the supervisor knows it: this node ends with that code.
struct Signalled {
  int number = 0;
  int exit_code = 0;
};
/// The job's deadline has come, and the supervisor knows it: the job ends with that code.
struct Expired {
  int exit_code = 0;
};
/// The front has died: nobody is left to serve.
struct FrontGone {};
/// None of the attempt's processes is left, and the supervisor knows of all ends.
struct NothingLeft {};
/// All that they wrote has been taken.
struct Drained {};
/// What is known of the ranks' last calls has been gathered.
struct Gathered {};

/// launcher::Ended: the supervisor has concluded the attempt.
using Event = std::variant<Admitted, Placed, Unfit, Ordered, JobOver, Signalled, Expired, FrontGone,
                           NothingLeft, Drained, Gathered, Ended>;

// ---- What is to be done, in order ----

/// Find out whether this node is fit, and where node rank 0 is reached; then comes Placed, or
/// Unfit. It voids an earlier one.
struct FindPlace {};
/// Start the workers.
struct Begin {};
/// The rendezvous is told that the epoch's workers have been ended: they were never started.
struct Decline {
  std::uint64_t epoch = 0;
};
/// The supervisor gets a StopOrder.
struct Stop {
  StopOrder::Manner manner = StopOrder::Manner::at_once;
};
/// The rendezvous is told that this node goes.
struct Leave {
  enum class Why { signal, expired, front_lost, unkillable, unfit };
  int exit_code = 0;
  Why why = Why::signal;
  int signal = 0;
};
/// Take the rest of the output; then comes Drained.
struct Drain {};
/// Gather the ranks' last calls; then comes Gathered. `asks`: ask the other nodes for theirs, too,
/// since this node speaks for all.
struct Gather {
  bool asks = true;
};
/// The supervisor gets AllGone; then comes Ended.
struct Conclude {};
/// The rendezvous is told how the workers ended.
struct Report {};
/// The end: tell the user, and go.
struct Finish {
  int exit_code = 0;
};
/// The user has waited long enough: go at once.
struct ExitNow {};

using Effect = std::variant<FindPlace, Begin, Decline, Stop, Leave, Drain, Gather, Conclude, Report,
                            Finish, ExitNow>;
using Effects = std::vector<Effect>;

/// Total: every event has an answer in every state. Not thread-safe.
class AgentCore {
 public:
  /// `alone`: no other node has to hear of this one's end.
  explicit AgentCore(bool alone) : alone_(alone) {}

  Effects step(const Event& event);

  /// Whether the end is decided: nothing is started any more.
  bool is_decided() const { return job_over_ || leaving_; }
  /// Whether this node leaves: the rendezvous has no say any more.
  bool is_leaving() const { return leaving_.has_value(); }
  /// Whether no process is left and the rest of their output is being taken.
  bool is_winding_up() const;
  /// Whether the user no longer waits for the output.
  bool is_abandoned() const { return abandoned_; }

 private:
  struct Waiting {};  ///< For an admission.
  struct Placing {
    EpochName epoch;
  };
  struct Working {
    EpochName epoch;
  };
  struct Draining {};
  struct Gathering {};
  struct Concluding {};
  struct Over {};
  using State = std::variant<Waiting, Placing, Working, Draining, Gathering, Concluding, Over>;

  void on(const Admitted& e);
  void on(const Placed& e);
  void on(const Unfit& e);
  void on(const Ordered& e);
  void on(const JobOver& e);
  void on(const Signalled& e);
  void on(const Expired& e);
  void on(const FrontGone&);
  void on(const NothingLeft&);
  void on(const Drained&);
  void on(const Gathered&);
  void on(const Ended& e);

  template <class One>
  bool is() const {
    return std::holds_alternative<One>(state_);
  }
  bool has_workers() const { return !is<Waiting>() && !is<Placing>() && !is<Over>(); }
  void leave(const Leave& how);
  void finish(int exit_code);

  const bool alone_;
  State state_;
  std::optional<EpochName> last_;  ///< The last epoch it was admitted to.
  std::optional<int> job_over_;    ///< The job's code; we end when the workers are gone.
  /// Our code when we leave. If both are set, the job ended first.
  std::optional<int> leaving_;
  StopSignals stop_signals_;
  bool abandoned_ = false;
  Effects effects_;  ///< Effects of the event being answered.
};

}  // namespace dlaunch::launcher::life
