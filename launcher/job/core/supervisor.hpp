#pragma once

#include "launcher/request/failure_rules.hpp"
#include "launcher/request/stop_signals.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/exit_status.hpp"
#include "runtime/base/verdict.hpp"

#include <dlaunch/error.hpp>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

// ---- What the agent tells the supervisor. Ranks are local: 0..workers-1. ----

/// A round admitted this node: its workers are to run.
struct Start {
  int attempt = 0;
  int first_rank = 0;  ///< This node's, in the world: facts and verdicts are about world ranks.
};
/// All workers of the attempt run.
struct Spawned {};
/// One could not be started; those started before it may run.
struct SpawnFailed {
  int exit_code = 0;
};
struct Exited {
  int rank = 0;
  ExitStatus status;
};
/// The worker is a member of the runtime: it hears of losses, and will report.
struct Joined {
  int rank = 0;
};
/// The worker is ready: it has begun MPI, say, or has reached PyTorch's store. It is then waited
/// for without a limit. A member is ready, too.
struct Ready {
  int rank = 0;
};
/// A call failed in the worker, which says whose fault that was.
struct Reported {
  int rank = 0;
  Claim claim;
};
/// The worker gives up the whole job, which is to end with this code, never 0: it called MPI_Abort,
/// or its process ended in the middle of MPI.
struct GaveUp {
  int rank = 0;
  int exit_code = 1;
};
/// A traceback began in the worker's output: it has been failing since then, or it goes on.
struct SaidTraceback {
  int rank = 0;
  Clock::time_point at{};
};
/// The worker has left an error file, written at that time; known when no process is left.
struct WroteErrorFile {
  int rank = 0;
  Clock::time_point at{};
};
/// A worker of another node exited with 0.
struct LeftElsewhere {};
/// No rank of the job has made progress for as long as it may: the attempt is over.
struct Stalled {};
/// A signal that ends the job.
struct StopSignal {
  int number = 0;
};
/// The job's deadline has come.
struct Expired {};
/// A signal that is only handed on.
struct OtherSignal {
  int number = 0;
};
/// The rendezvous wants the workers ended; they have not failed.
struct StopOrder {
  enum class Manner {
    report_first,  ///< A worker on another node failed: as after a failure here.
    at_once,       ///< The round is dissolved: SIGTERM.
    kill,          ///< This node was given up and others may have its ranks: SIGKILL.
  };
  Manner manner = Manner::at_once;
};
struct Tick {};
/// No process of the attempt is left, grandchildren included.
struct AllGone {};
/// The front process died: nobody is left to serve.
struct FrontLost {};

using Event = std::variant<Start, Spawned, SpawnFailed, Exited, Joined, Ready, Reported, GaveUp,
                           SaidTraceback, WroteErrorFile, LeftElsewhere, Stalled, StopSignal,
                           Expired, OtherSignal, StopOrder, Tick, AllGone, FrontLost>;

// ---- What the supervisor wants done, in order. ----

struct Spawn {
  int attempt = 0;
};
/// Tell all members that this rank is gone, and why.
struct PublishLoss {
  int rank = 0;
  Fact fact;
};
/// Tell the user that some have ended well and others still run.
struct TellStragglers {
  std::vector<int> ended;  ///< Empty where the first was another node's.
  std::vector<int> running;
  Clock::duration since{};  ///< When the first of them ended.
  bool over = false;        ///< It counts as a failure, and the attempt is ended.
};
/// Tell the user that these have not become ready in time; the attempt is ended for that.
struct TellUnready {
  std::vector<int> ranks;
};
/// Send a Tick at this time; replaces an earlier wish.
struct ArmTimer {
  Clock::time_point at;
};
/// The signal that is to end them to every worker's process group, and to processes they left
/// behind. Those that are stopped are continued, since a stopped process cannot take it.
struct SignalAll {
  int number = 0;
};
/// To the same, a signal that is not dlaunch's to judge.
struct HandOn {
  int number = 0;
};
/// SIGKILL to everything, again and again until nothing is left.
struct KillAll {};

enum class Outcome { succeeded, failed, stopped, spawn_failed, front_lost };
/// The attempt is over, and nothing of it is left. Whether there is another is the rendezvous'
/// decision.
struct Ended {
  Outcome outcome = Outcome::succeeded;
  int exit_code = 0;  ///< What the job would end with; 0 where an order stopped it.
  /// The verdict by this node's facts; the rendezvous hears of all nodes and may know better.
  std::optional<Verdict> verdict = std::nullopt;
  bool unkillable = false;  ///< Something survived SIGKILL; we leave without it.

  bool operator==(const Ended&) const = default;
};

using Effect = std::variant<Spawn, PublishLoss, TellStragglers, TellUnready, ArmTimer, SignalAll,
                            HandOn, KillAll, Ended>;
using Effects = std::vector<Effect>;

struct SupervisorRules : FailureRules {
  int workers = 1;
  bool peers_elsewhere = false;  ///< Other nodes' workers have to hear of every loss.
  /// Once all have reported: the part of the remaining grace in which they may print their own
  /// sentence and exit; on a busy machine a process may first have to wait for a processor.
  Clock::duration last_words = failure_grace_standard;
  /// After a failure: the time for workers without the runtime that have begun a traceback to exit.
  Clock::duration traceback_grace = std::chrono::seconds(1);
  /// The time for what does not die of SIGKILL.
  Clock::duration kill_timeout = std::chrono::seconds(5);
  /// A tick later than this says that the agent stood still.
  Clock::duration late_tick = std::chrono::seconds(1);
};

/// A rank's claim about a call explains its end only within this time: it may have gone on.
inline constexpr auto claim_holds_for = std::chrono::seconds(30);
/// A traceback explains its end only within this time: programs print them and go on.
inline constexpr auto traceback_holds_for = std::chrono::seconds(2);

/// The facts about a worker of the current attempt.
struct WorkerRecord {
  std::optional<ExitStatus> exit;
  Clock::time_point ended{};
  bool stopped_by_us = false;  ///< It ended after we had begun to end the attempt.
  bool member = false;
  bool ready = false;  ///< Set for workers that are no members.
  /// Its end was told to the members, and will be to those who come later.
  bool published = false;
  std::optional<Claim> claim;
  Clock::time_point claimed{};
  std::vector<Clock::time_point> tracebacks;  ///< When the last ones began, in order.
  std::optional<Clock::time_point> wrote_error_file = std::nullopt;
  /// When it gave up the job, and with which code.
  struct GaveUpAt {
    int exit_code = 1;
    Clock::time_point at{};
  };
  std::optional<GaveUpAt> gave_up = std::nullopt;

  bool failed() const { return gave_up || (exit && !exit->succeeded() && !stopped_by_us); }
};

/// Decides what becomes of the workers of one agent: pure, total (every event has an answer in
/// every state), not thread-safe. It reads no clock: `now` comes in with the event.
class Supervisor {
 public:
  explicit Supervisor(SupervisorRules rules);

  Effects step(const Event& event, Clock::time_point now);

  /// Idle: before the first attempt and after each.
  enum class State { idle, starting, running, grace, terminating, killing };
  State state() const { return state_; }
  int attempt() const { return attempt_.number; }
  const std::vector<WorkerRecord>& workers() const { return attempt_.workers; }
  /// Workers that run, and are not known to be ready when they have to be; at other times none.
  std::vector<int> overdue(Clock::time_point now) const;
  /// What is known of the current attempt's ranks, for the judge.
  Facts facts() const;
  /// How the attempt would be judged, were it over now.
  Ended verdict() const;

 private:
  void on(const Start&);
  void on(const Spawned&);
  void on(const SpawnFailed&);
  void on(const Exited&);
  void on(const Joined&);
  void on(const Ready&);
  void on(const Reported&);
  void on(const GaveUp&);
  void on(const SaidTraceback&);
  void on(const WroteErrorFile&);
  void on(const LeftElsewhere&);
  void on(const Stalled&);
  void on(const StopSignal&);
  void on(const Expired&);
  void on(const OtherSignal&);
  void on(const StopOrder&);
  void on(const Tick&);
  void on(const AllGone&);
  void on(const FrontLost&);

  void begin_attempt(const Start& start);
  void publish_losses();
  void judge_running();
  void arm_running();
  void judge_time();
  void judge_readiness();
  bool has_stragglers_due() const;
  void judge_stragglers();
  void begin_grace();
  void judge_grace();
  void await_failing();
  void end_grace();
  void forgive_own_stall();
  void terminate(int signal_number);
  void kill();
  void conclude(bool unkillable);
  void arm(Clock::duration after);

  /// Workers may run that can be told something.
  bool has_running() const {
    return state_ == State::running || state_ == State::grace || state_ == State::terminating;
  }
  bool all_exited() const;
  bool someone_failed() const;
  bool is_settled() const;
  bool blames_elsewhere(const Verdict& cause) const;
  bool someone_will_report() const;
  bool someone_is_exiting() const;
  bool someone_has_grace() const;
  bool someone_is_failing() const;
  std::optional<Clock::time_point> failing_since(const WorkerRecord& worker) const;
  std::optional<Clock::time_point> first_failure() const;
  Fact fact_of(std::size_t rank) const;

  SupervisorRules rules_;
  State state_ = State::idle;
  /// The facts about one start of the workers.
  struct Attempt {
    int number = 0;
    int first_rank = 0;
    std::vector<WorkerRecord> workers = {};
    std::optional<Clock::time_point> deadline = std::nullopt;
    bool last_words = false;  ///< All have reported; the deadline is that of their exits.
    Clock::time_point grace_began{};
    /// When the grace was over, and those that still ran were stopped for a failure.
    std::optional<Clock::time_point> grace_ended = std::nullopt;
    /// When a worker ended with 0, here or elsewhere.
    std::optional<Clock::time_point> first_success = std::nullopt;
    bool told_stragglers = false;
    /// The time by which all have to be ready.
    std::optional<Clock::time_point> ready_by = std::nullopt;
    /// Whether it was ended for stragglers, for workers that were not ready, or because the job had
    /// stalled.
    bool no_progress = false;
    std::optional<StopOrder::Manner> order = std::nullopt;
    std::optional<int> spawn_failure_code = std::nullopt;
  };
  Attempt attempt_;
  StopSignals stop_signals_;
  std::optional<int> stop_signal_;  ///< The first one.
  bool expired_ = false;
  bool settled_before_stop_ = false;  ///< An outcome before either gives the exit code.
  bool front_lost_ = false;

  Clock::time_point now_{};  ///< Time of the event being answered.
  Effects effects_;          ///< Effects of the event being answered.
};

}  // namespace dlaunch::launcher
