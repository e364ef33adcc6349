#pragma once

#include "launcher/job/agent.hpp"
#include "launcher/job/core/agent_core.hpp"
#include "launcher/job/core/supervisor.hpp"
#include "launcher/job/history.hpp"
#include "launcher/job/job_deadline.hpp"
#include "launcher/job/job_link.hpp"
#include "launcher/output/console.hpp"
#include "launcher/output/waiting_row.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/pmi/mpi_server.hpp"
#include "launcher/pmi/unserved_mpi.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/process/node_check.hpp"
#include "launcher/process/notify_pipe.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/signal_inbox.hpp"
#include "launcher/process/stack_dump.hpp"
#include "launcher/process/terminal_loan.hpp"
#include "launcher/process/workers.hpp"
#include "launcher/report/timings.hpp"
#include "launcher/watch/health.hpp"
#include "launcher/watch/job_entry.hpp"
#include "launcher/watch/watch.hpp"
#include "rendezvous/service/job_host.hpp"
#include "runtime/base/exit_code.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

namespace dlaunch::launcher {

namespace asio = boost::asio;

/// Waits that the user did not cause are told after this long.
inline constexpr auto own_notice_after = std::chrono::seconds(5);

/// The inside of run_agent, for the files that implement it and nobody else: agent.cpp takes what
/// happens, agent_effects.cpp does what the two cores want, up to the end.
class Agent : private rendezvous::JobObserver,
              private SeatListener,
              private SignalListener,
              private MpiListener {
 public:
  Agent(const AgentTask& task, const AgentSeat& seat);
  int run();

 private:
  void on_joined(int rank) override;
  void on_reported(int rank, const wire::Report& report) override;
  void on_inquired(int rank, const std::vector<std::int32_t>& about) override;
  void on_left(int rank) override;
  void on_warning(const std::string& sentence) override { say(sentence, Level::warning); }
  void on_refused_client(const Address& peer, const Address& own, const std::string& why) override;

  void on_admitted(const rendezvous::Admission& admission) override;
  void on_order(std::uint64_t epoch, StopOrder::Manner manner) override;
  void on_ranks_lost(const rendezvous::RanksLost& lost) override;
  void on_store_lost(const std::string& why) override {
    if (host_) host_->lose_store(why);
  }
  void on_asked(const rendezvous::message::Asked& asked) override {
    watch_.inquiries().on_asked(asked);
  }
  void on_answered(const rendezvous::message::Answered& answered) override {
    watch_.inquiries().on_answered(answered);
  }
  void on_reconnected() override { watch_.on_reconnected(); }
  void on_standing(const std::string& sentence) override {
    watch_.note_standing(sentence);
    gang_is_gone() ? waiting_.show(sentence) : say(sentence);
  }
  void on_finished(const rendezvous::Finish& end, bool judged) override;

  void on_mpi_said(const std::string& sentence) override { say(sentence, Level::warning); }
  void on_gave_up(int local_rank, int exit_code) override { feed(GaveUp{local_rank, exit_code}); }

  void on_child_change() override;
  void on_front_lost() override;
  void on_handed_on(int signal_number) override;

  void stop_ourselves();
  void on_deadline();
  void look_for_ready();
  void on_stalled(const std::string& sentence);
  void heed_watch();
  void open_notify_pipe();
  void on_time_wanted(std::chrono::milliseconds time);
  void tell_words_of_unready();
  void tell_of_job_deadline();
  void on_job_deadline();
  int code_of_stop(int otherwise) const;
  void tell_late(Clock::duration after, std::function<std::string()> text);
  void tell_stopping_later(int signal_number);
  std::string stopping_text() const;
  std::string check_text() const;
  void show_who_still_runs();
  void take_stops(const std::vector<Workers::Stopped>& stopped);
  std::unique_ptr<OwnCgroup> make_cgroup();
  void on_traceback(int rank, Clock::time_point at);
  void deliver_when_read(const std::vector<Workers::Ended>& ended);
  void deliver_read(const std::vector<int>& local_ranks);
  void deliver(const Workers::Ended& ended);
  void deliver_all_waiting();
  void check_all_gone();

  void place();
  void check_node(const life::EpochName& epoch, const std::function<void()>& fit);
  void live(const life::Event& event);
  void execute(const life::FindPlace&);
  void execute(const life::Begin&);
  void execute(const life::Decline& effect);
  void execute(const life::Stop& effect);
  void execute(const life::Leave& effect);
  void execute(const life::Drain&);
  void execute(const life::Gather& effect);
  void execute(const life::Conclude&);
  void execute(const life::Report&);
  void execute(const life::Finish& effect);
  void execute(const life::ExitNow&) { ::_exit(exit_code_); }

  void feed(const Event& event);
  void execute(const Spawn& effect);
  void execute(const PublishLoss& effect);
  void execute(const TellStragglers& effect);
  void execute(const TellUnready& effect);
  void execute(const ArmTimer& effect);
  void execute(const SignalAll& effect);
  void execute(const HandOn& effect);
  void execute(const KillAll&);
  void execute(const Ended& effect);
  void take_stacks(int signal_afterwards);
  void note_timeout(const Workers::Ended& ended);
  void tell_and_stop(JobEnd end);
  void say(const std::string& sentence, Level level = Level::info) {
    console_.say(sentence, level);
  }
  JobEntry entry() const;
  JobRanks ranks() const;
  JobDrained drain();
  JobStoreWaits store_waits() const;
  JobState state() const;
  void open_health();
  void tell_health();
  void say_block(const FailureBlock& block);
  void say_timings();
  void open_host();
  void meet_mpi_nodes(std::function<void()> known);
  std::optional<std::string> note_of_unused_mpi() const;
  /// A client of PyTorch's store.
  struct Client {
    std::string name = {};
    int rank = -1;  ///< -1: not known.
  };
  Client client_of(const Address& peer, const Address& own) const;
  void say_where_logs_are(const std::optional<std::string>& no_directory);

  bool is_ours(int rank) const { return local(rank) >= 0 && local(rank) < task_.workers; }
  int local(int rank) const { return rank - epoch_.assignment.first_rank; }
  bool is_ending() const {
    return supervisor_.state() == Supervisor::State::terminating ||
           supervisor_.state() == Supervisor::State::killing;
  }
  bool gang_is_gone() const { return supervisor_.state() == Supervisor::State::idle; }
  bool is_killing() const { return supervisor_.state() == Supervisor::State::killing; }

  const AgentTask& task_;
  const AgentSeat& seat_;
  asio::io_context io_{1};
  SignalInbox signals_;
  std::optional<InputEnd> input_end_;  ///< With --ends-with-stdin.
  JobDeadline job_deadline_;
  asio::steady_timer timer_;
  asio::steady_timer last_words_timer_;
  asio::steady_timer late_notice_;
  JobLink link_;
  /// This node's share of one epoch, and what it has heard of it.
  struct Epoch {
    Assignment assignment = {};
    /// Sentence about stragglers, or about ranks that were not ready.
    std::string no_progress = {};
    std::string start_problem = {};             ///< Why its workers could not be started.
    std::optional<int> unready = std::nullopt;  ///< The first rank that was not ready.
    std::string left_elsewhere = {};            ///< "rank 3 on h2", the first to exit with 0 there.
    struct Stopping {
      int signal = 0;  ///< The user's signal; 0: dlaunch itself stops it.
      Clock::time_point killed_at{};
    };
    std::optional<Stopping> stopping = std::nullopt;
    bool failed_elsewhere = false;  ///< The first failure was on another node.
    bool timed_out = false;         ///< A call timed out, or another wait of --stack-on-timeout.
    bool wants_no_stacks = false;   ///< They have been taken, or the user stops it.
  };
  Epoch epoch_;
  rendezvous::Admission offered_;    ///< The last admission that has come.
  rendezvous::Admission admission_;  ///< The last admission that was taken.
  Assignment placed_;                ///< This node's place by it, once it is known.
  Console console_;
  WaitingRow waiting_;
  Workers workers_;
  /// With --node-check: the check for the last admission.
  std::unique_ptr<NodeCheck> check_;
  std::string unfit_for_;                    ///< The reason it found; empty: the node is fit.
  std::unique_ptr<NotifyPipe> notify_pipe_;  ///< From the first start on, where it is of use.
  bool told_of_notices_ = false;
  /// The last postponed deadline that was told.
  std::optional<WallClock::time_point> told_deadline_;
  std::unique_ptr<StackDump> stacks_;  ///< With --stack-on-timeout, the last.
  TerminalLoan loan_;
  std::unique_ptr<rendezvous::JobHost> host_;  ///< From the first admission on.
  std::unique_ptr<MpiServer> mpi_;             ///< Null where MPI is not served.
  UnservedMpi unserved_mpi_;
  life::AgentCore core_;
  Supervisor supervisor_;
  History history_;
  LaunchTimes times_;
  RunDirectory run_directory_;
  Watch watch_;
  std::unique_ptr<HealthServer> health_;  ///< With --health-port.
  asio::steady_timer health_timer_;

  std::deque<life::Event> happened_;  ///< For the core.
  bool living_ = false;
  std::deque<Event> events_;  ///< For the supervisor.
  bool feeding_ = false;
  std::map<int, Workers::Ended> waiting_for_last_words_;  ///< By local rank.
  std::map<int, Workers::Ended> waiting_for_output_;      ///< By local rank.
  /// The last calls, to be written to a file.
  JobSnapshot flight_;
  Ended last_end_;                ///< The end of the last attempt.
  std::vector<Hanging> hanging_;  ///< Processes that SIGKILL has not ended.
  bool told_of_logs_ = false;
  bool drained_ = false;  ///< The user has asked for it.
  int exit_code_ = exit_code::internal;
};

}  // namespace dlaunch::launcher
