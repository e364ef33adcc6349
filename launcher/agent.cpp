#include "launcher/agent.hpp"

#include "launcher/agent_settings.hpp"
#include "launcher/console.hpp"
#include "launcher/descriptors.hpp"
#include "launcher/end_report.hpp"
#include "launcher/environment.hpp"
#include "launcher/flight_report.hpp"
#include "launcher/history.hpp"
#include "launcher/job_link.hpp"
#include "launcher/plan.hpp"
#include "launcher/signal_inbox.hpp"
#include "launcher/supervisor.hpp"
#include "launcher/watch.hpp"
#include "launcher/workers.hpp"
#include "rendezvous/job_host.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace asio = boost::asio;

/// A worker's last report lies in its control socket when we learn of its end. It is read first,
/// but only as long as this: a process that the worker forked may hold the socket open.
constexpr auto last_words_timeout = std::chrono::milliseconds(20);

class Agent : private rendezvous::JobObserver, private SeatListener, private SignalListener {
 public:
  Agent(const AgentTask& task, const AgentSeat& seat);
  int run();

 private:
  void on_joined(int rank) override;
  void on_reported(int rank, const wire::Report& report) override;
  void on_left(int rank) override;
  void on_warning(const std::string& sentence) override { say(sentence); }

  void on_admitted(const rendezvous::Admission& admission) override;
  void on_order(std::uint64_t epoch, StopOrder::Manner manner, const std::string& reason) override;
  void on_ranks_lost(int first_rank, int count, const std::string& host,
                     const std::string& cause) override;
  void on_standing(const std::string& sentence) override { say(sentence); }
  void on_finished(int exit_code, const std::string& sentence) override;

  void on_child_change() override;
  void on_front_lost() override;
  void on_handed_on(int signal_number) override;

  void leave(int exit_code, const std::string& reason);
  void deliver(const Workers::Ended& ended);
  void deliver_all_waiting();
  void check_all_gone();
  void on_all_gone();

  void feed(const Event& event);
  void execute(const Spawn& effect);
  void execute(const PublishLoss& effect);
  void execute(const TellStragglers& effect);
  void execute(const ArmTimer& effect);
  void execute(const SignalAll& effect) { workers_.signal_all(effect.number); }
  void execute(const KillAll&);
  void execute(const Ended& effect);
  void finish(int exit_code);
  void tell_and_stop(const JobEnd& end);
  void say(const std::string& sentence) { console_.say(sentence); }
  std::unique_ptr<Output> make_output() const;
  LaunchPlan plan_of(const Assignment& assignment) const;
  void begin_epoch(Assignment assignment, const StoreClients& clients);
  void open_host();
  void say_restart(int attempt);

  int local(int rank) const { return rank - assignment_.first_rank; }
  bool gang_is_gone() const { return supervisor_.state() == Supervisor::State::idle; }

  const AgentTask& task_;
  const AgentSeat& seat_;
  asio::io_context io_{1};
  SignalInbox signals_;
  asio::steady_timer timer_;
  asio::steady_timer last_words_timer_;
  JobLink link_;
  Assignment assignment_;  ///< Of the current epoch.
  Console console_;
  Workers workers_;
  std::unique_ptr<rendezvous::JobHost> host_;  ///< From the first admission on.
  Supervisor supervisor_;
  History history_;
  Watch watch_;

  std::deque<Event> events_;
  bool feeding_ = false;
  std::map<int, Workers::Ended> waiting_for_last_words_;  ///< By local rank.
  std::string stragglers_;                                ///< As they were told of.
  std::string order_reason_;                              ///< Why the workers were ended.
  Ended last_end_;                                        ///< Of the last attempt.
  std::optional<int> final_code_;  ///< The job is over; we end when the workers are gone.
  bool leaving_ = false;           ///< The rendezvous has no say any more.
  bool finished_ = false;
  bool killing_ = false;
  bool draining_ = false;
  bool abandoned_ = false;  ///< The user no longer waits for the output to be taken.
  int exit_code_ = exit_code::internal;
};

Agent::Agent(const AgentTask& task, const AgentSeat& seat)
    : task_(task),
      seat_(seat),
      signals_(io_, seat.front, *this),
      timer_(io_),
      last_words_timer_(io_),
      link_(io_, task, *this),
      console_(make_output()),
      workers_({.mask = seat.original_mask,
                .descriptors = raise_descriptor_limit(),
                .give_terminal = seat.owns_terminal,
                .output = console_.output()}),
      supervisor_(rules_of(task)),
      history_(task.options, task.job, task.machine.hostname),
      watch_(
          io_, task.options.stuck_after,
          [this] { return host_ ? host_->shared_memory() : nullptr; },
          [this](const std::string& sentence) { say(sentence); }) {
  for (const auto& note : task.options.notes) say(note);
}

int Agent::run() {
  asio::post(io_, [this] { link_.start(); });
  io_.run();
  return exit_code_;
}

LaunchPlan Agent::plan_of(const Assignment& assignment) const {
  return make_plan(task_.options, task_.machine, task_.environment, assignment);
}

/// Whether a worker keeps our streams depends on how many there are, which is known before the
/// round.
std::unique_ptr<Output> Agent::make_output() const {
  Assignment alone;
  alone.local_size = alone.world_size = task_.workers;
  if (task_.options.nodes.most > 1) ++alone.world_size;
  const LaunchPlan plan = plan_of(alone);
  const bool all_inherit = std::all_of(plan.workers.begin(), plan.workers.end(),
                                       [](const auto& w) { return w.stdio.inherit; });
  return all_inherit ? nullptr : std::make_unique<Output>(STDOUT_FILENO, STDERR_FILENO);
}

// ---- What the rendezvous says ----

void Agent::on_admitted(const rendezvous::Admission& admission) {
  if (leaving_ || final_code_) return;
  link_.place(admission, [this, clients = store_clients(admission)](Assignment assignment) {
    if (!leaving_ && !final_code_) begin_epoch(std::move(assignment), clients);
  });
}

void Agent::begin_epoch(Assignment assignment, const StoreClients& clients) {
  const bool again = history_.has_attempt(assignment.attempt);
  assignment_ = std::move(assignment);
  assignment_.repeated_attempt = again;
  assignment_.control_fd = workers_.control_number();
  open_host();
  host_->serve_c10d_to(clients);
  assignment_.control_socket = host_->socket_name();
  if (assignment_.attempt > 0 && !again) say_restart(assignment_.attempt);
  if (console_.output() && !history_.empty()) console_.output()->forget_tails();
  order_reason_.clear();
  stragglers_.clear();
  feed(Start{assignment_.attempt});
}

/// The workers' host, for the new epoch.
void Agent::open_host() {
  rendezvous::JobIdentity identity = identity_of(task_, assignment_, link_.host());
  if (host_) return host_->begin_attempt(std::move(identity));
  rendezvous::JobObserver& observer = *this;
  host_ = std::make_unique<rendezvous::JobHost>(io_, std::move(identity), observer, link_.uplink());
  for (auto& listener : link_.take_store_listeners()) host_->serve_c10d(std::move(listener));
  if (auto* server = link_.shared_server()) host_->share_c10d(*server);
}

void Agent::on_order(std::uint64_t epoch, StopOrder::Manner manner, const std::string& reason) {
  if (epoch != assignment_.epoch && manner != StopOrder::Manner::kill) return;
  order_reason_ = reason;
  feed(StopOrder{manner});
}

void Agent::on_ranks_lost(int first_rank, int count, const std::string& host,
                          const std::string& cause) {
  if (!host_ || gang_is_gone()) return;
  for (int rank = first_rank; rank < first_rank + count; ++rank) {
    host_->publish_loss(rank, host, cause);
  }
}

void Agent::on_finished(int exit_code, const std::string& sentence) {
  if (leaving_ || final_code_) return;
  if (!sentence.empty()) say(sentence);
  final_code_ = exit_code;
  if (gang_is_gone()) return finish(exit_code);
  feed(StopOrder{StopOrder::Manner::at_once});
}

// ---- Signals ----

void Agent::on_front_lost() {
  feed(FrontLost{});
  leave(exit_code::internal, "its front process was lost");
}

void Agent::on_handed_on(int number) {
  const auto& stopping = task_.options.signals;
  if (std::find(stopping.begin(), stopping.end(), number) == stopping.end()) {
    return feed(OtherSignal{number});
  }
  // All processes are gone; only a reader that does not read holds us, or a node that does not end.
  if (finished_) ::_exit(exit_code_);
  if (draining_) {
    abandoned_ = true;
    draining_ = false;
    return on_all_gone();
  }
  feed(StopSignal{number});
  // What failed before the signal gives the code.
  const Ended now = supervisor_.verdict();
  const bool failed = now.outcome == Outcome::failed && !gang_is_gone();
  leave(failed ? now.exit_code : 128 + number, "stopped by " + signal_name(number));
}

void Agent::leave(int exit_code, const std::string& reason) {
  if (finished_ || std::exchange(leaving_, true)) return;
  if (Seat* seat = link_.seat()) seat->leave(exit_code, reason);
  if (gang_is_gone()) finish(exit_code);
}

// ---- Workers ----

void Agent::on_joined(int rank) {
  watch_.joined(local(rank));
  feed(Joined{local(rank)});
}

void Agent::on_reported(int rank, const wire::Report& report) {
  const int blamed = report.peer < 0 ? -1 : local(report.peer);
  feed(Reported{local(rank), report.code, blamed < task_.workers ? blamed : -1});
}

void Agent::on_left(int rank) {
  const auto ended = waiting_for_last_words_.extract(local(rank));
  if (!ended.empty()) deliver(ended.mapped());
  check_all_gone();
}

void Agent::on_child_change() {
  bool stopped = false;
  for (const auto& ended : workers_.reap(stopped)) {
    history_.add(ended);
    watch_.ended(ended);
    if (host_->is_connected(assignment_.first_rank + ended.local_rank)) {
      waiting_for_last_words_.emplace(ended.local_rank, ended);
    } else {
      deliver(ended);
    }
  }
  // Ctrl-Z in a worker that has the terminal: the shell waits for our front to stop.
  if (stopped && seat_.owns_terminal) ::kill(seat_.front, SIGTSTP);
  if (killing_ && !workers_.nothing_left()) workers_.signal_all(SIGKILL);
  if (!waiting_for_last_words_.empty()) {
    last_words_timer_.expires_after(last_words_timeout);
    last_words_timer_.async_wait([this](auto error) {
      // Where this process had to wait for a processor itself, they may lie in the socket by now.
      if (!error) asio::post(io_, [this] { asio::post(io_, [this] { deliver_all_waiting(); }); });
    });
  }
  check_all_gone();
}

void Agent::deliver_all_waiting() {
  for (const auto& [rank, ended] : std::exchange(waiting_for_last_words_, {})) deliver(ended);
  check_all_gone();
}

void Agent::deliver(const Workers::Ended& ended) {
  // A worker with the terminal gets Ctrl-C itself; its death by it is the user's wish to stop.
  const bool interrupted = ended.status.signal == SIGINT || ended.status.signal == SIGQUIT;
  if (interrupted && seat_.owns_terminal && !console_.output()) on_handed_on(ended.status.signal);
  feed(Exited{ended.local_rank, ended.status});
}

void Agent::check_all_gone() {
  const bool ending = supervisor_.state() == Supervisor::State::terminating ||
                      supervisor_.state() == Supervisor::State::killing;
  if (!ending || draining_ || !workers_.nothing_left() || !waiting_for_last_words_.empty()) return;
  draining_ = true;
  timer_.cancel();
  console_.drain([this] {
    asio::post(io_, [this] {
      if (std::exchange(draining_, false)) on_all_gone();
    });
  });
}

void Agent::on_all_gone() {
  watch_.stop();
  if (supervisor_.verdict().outcome == Outcome::failed && history_.plan().flight_file &&
      watch_.has_calls()) {
    const auto problem = history_.write_flight(merge_flight({watch_.answer("flight")}));
    if (problem) say(*problem);
  }
  history_.end_attempt(supervisor_, console_.output());
  feed(AllGone{});
}

void Agent::feed(const Event& event) {
  events_.push_back(event);
  if (std::exchange(feeding_, true)) return;
  for (; !events_.empty(); events_.pop_front()) {
    for (const auto& effect : supervisor_.step(events_.front(), Clock::now())) {
      std::visit([this](const auto& e) { execute(e); }, effect);
    }
  }
  feeding_ = false;
}

// ---- Effects ----

void Agent::execute(const Spawn&) {
  killing_ = false;
  history_.begin_attempt(plan_of(assignment_));
  watch_.begin(assignment_, task_.machine.hostname, task_.options.node_id);
  const auto problem = workers_.start(history_.plan());
  watch_.started(workers_.pids());
  auto controls = workers_.take_controls();
  for (std::size_t i = 0; i < controls.size(); ++i) {
    host_->expect(history_.plan().workers[i].rank, std::move(controls[i]));
  }
  if (!problem) return feed(Spawned{});
  say(problem->sentence);
  feed(SpawnFailed{problem->exit_code});
}

void Agent::execute(const PublishLoss& effect) {
  const int rank = assignment_.first_rank + effect.rank;
  host_->publish_loss(rank, task_.machine.hostname, effect.cause);
  if (effect.failed && !leaving_) {
    link_.seat()->worker_failed(assignment_.epoch, rank, effect.cause);
  }
}

void Agent::execute(const TellStragglers& effect) {
  stragglers_ = straggler_sentence(effect, assignment_.first_rank);
  say(stragglers_ + straggler_outlook(effect, task_.options));
}

void Agent::execute(const ArmTimer& effect) {
  timer_.expires_at(effect.at);
  timer_.async_wait([this](auto error) {
    if (!error) feed(Tick{});
  });
}

void Agent::execute(const KillAll&) {
  killing_ = true;
  const auto ranks = ranks_running(workers_.pids(), assignment_.first_rank);
  if (!ranks.empty()) say("killing what still runs, rank" + ranks);
  workers_.signal_all(SIGKILL);
  asio::post(io_, [this] { on_child_change(); });
}

void Agent::execute(const Ended& effect) {
  last_end_ = effect;
  if (effect.unkillable) history_.end_attempt(supervisor_, console_.output());
  if (final_code_) return finish(*final_code_);
  if (effect.unkillable) leave(effect.exit_code, "its workers cannot be killed");
  if (leaving_) return finish(effect.exit_code);

  const bool straggled = !effect.root_cause && !stragglers_.empty();
  link_.seat()->workers_ended(
      report_of(effect, assignment_, straggled ? stragglers_ : history_.root_cause_sentence()));
}

void Agent::finish(int exit_code) {
  if (std::exchange(finished_, true)) return;
  exit_code_ = exit_code;
  const JobEnd end = job_end(last_end_, exit_code, leaving_, history_.empty());
  if (abandoned_) return tell_and_stop(end);
  link_.close([this, end] { tell_and_stop(end); });
}

void Agent::tell_and_stop(const JobEnd& end) {
  if (end.outcome == Outcome::failed || end.outcome == Outcome::succeeded) {
    console_.say_lines(history_.summary(task_.options.max_restarts));
  }
  if (last_end_.unkillable) {
    say("some processes do not die of SIGKILL (they hang in the kernel); leaving without them");
  }
  const auto outer = lookup(task_.environment, "TORCHELASTIC_ERROR_FILE").value_or("");
  for (const auto& problem : history_.finish(end, std::string(outer))) {
    say(problem);
    if (exit_code_ == 0) exit_code_ = exit_code::internal;
  }
  task_.run_directory.finish(history_.has_files());
  if (abandoned_) ::_exit(exit_code_);
  console_.drain([this] { asio::post(io_, [this] { io_.stop(); }); });
}

// ---- What the user reads ----

void Agent::say_restart(int attempt) {
  const std::string cause = history_.has_root_cause() ? history_.root_cause_sentence()
                            : order_reason_.empty()   ? "a node was lost"
                                                      : order_reason_;
  say(cause + restart_text(attempt, task_.options));
}

}  // namespace

int run_agent(const AgentTask& task, const AgentSeat& seat) {
  const auto say = [](const std::exception& error) {
    const std::string line = std::string("dlaunch: ") + error.what() + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  };
  reserve_descriptors(task.workers);
  try {
    return Agent(task, seat).run();
  } catch (const Error& error) {
    say(error);
    const bool away = error.errc() == Errc::refused || error.errc() == Errc::unreachable;
    return away ? exit_code::unreachable : exit_code::internal;
  } catch (const std::exception& error) {  // Out of memory, or out of what Asio needs.
    say(error);
    return exit_code::internal;
  }
}

}  // namespace dlaunch::launcher
