#include "launcher/agent.hpp"

#include "launcher/environment.hpp"
#include "launcher/exit_code.hpp"
#include "launcher/history.hpp"
#include "launcher/master_port.hpp"
#include "launcher/plan.hpp"
#include "launcher/supervisor.hpp"
#include "launcher/workers.hpp"
#include "rendezvous/job_host.hpp"
#include "runtime/base/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

namespace asio = boost::asio;

/// A worker's last report lies in its control socket when we learn of its end. It is read first,
/// but only as long as this: a process that the worker forked may hold the socket open.
constexpr auto last_words_timeout = std::chrono::milliseconds(20);

/// Our own limit on descriptors goes up to what is allowed (five per worker are needed); the
/// workers keep what they would have had without us.
/// Pipes and sockets that a worker costs while it runs, with some to spare.
constexpr int descriptors_per_worker = 6;
constexpr int descriptors_of_agent = 64;

/// Makes the descriptor table as large as it will become, before there is a second thread: later
/// the kernel would wait for all cores at each doubling (synchronize_rcu), milliseconds a time.
void reserve_descriptors(int workers) {
  const unique_fd highest(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC,
                                  descriptors_of_agent + descriptors_per_worker * workers));
}

rlimit raise_descriptor_limit() {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

class Agent : private rendezvous::JobObserver {
 public:
  Agent(const AgentTask& task, const AgentSeat& seat);
  int run();

 private:
  void on_joined(int rank) override { feed(Joined{local(rank)}); }
  void on_reported(int rank, const wire::Report& report) override;
  void on_left(int rank) override;

  void await_signal();
  void on_signal(const signalfd_siginfo& info);
  void on_child_change();
  void deliver(const Workers::Ended& ended);
  void deliver_all_waiting();
  void check_all_gone();
  void on_all_gone();

  void feed(const Event& event);
  void execute(const Spawn& effect);
  void execute(const PublishLoss& effect);
  void execute(const ArmTimer& effect);
  void execute(const SignalAll& effect) { workers_.signal_all(effect.number); }
  void execute(const KillAll&);
  void execute(const Finish& effect);
  void say(const std::string& sentence);
  void say_lines(const std::string& text);
  std::unique_ptr<Output> make_output() const;
  LaunchPlan plan_attempt(int attempt) const;
  Assignment assign() const;
  void say_still_running();
  void stop_loop();

  int local(int rank) const { return rank - assignment_.first_rank; }

  const AgentTask& task_;
  const AgentSeat& seat_;
  asio::io_context io_{1};
  asio::posix::stream_descriptor signals_;
  asio::steady_timer timer_;
  asio::steady_timer last_words_timer_;
  MasterPort master_port_;
  Assignment assignment_;
  std::unique_ptr<Output> output_;  ///< Null where the only worker has our streams.
  Workers workers_;
  rendezvous::JobHost host_;
  Supervisor supervisor_;
  History history_;

  std::deque<Event> events_;
  bool feeding_ = false;
  std::array<signalfd_siginfo, 16> signal_buffer_{};
  std::map<int, Workers::Ended> waiting_for_last_words_;  ///< By local rank.
  bool killing_ = false;
  bool draining_ = false;
  bool abandoned_ = false;  ///< The user no longer waits for the output to be taken.
  int exit_code_ = exit_code::internal;
};

SupervisorRules rules_of(const AgentTask& task) {
  SupervisorRules rules;
  rules.workers = task.workers;
  rules.max_restarts = task.options.max_restarts;
  rules.on_failure = task.options.continue_on_failure ? OnFailure::carry_on : OnFailure::stop;
  rules.failure_grace = task.options.failure_grace;
  rules.shutdown_timeout = task.options.shutdown_timeout;
  return rules;
}

int open_signals() {
  sigset_t all;
  sigfillset(&all);
  const int fd = ::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) throw Error(Errc::internal, "cannot open a signalfd: " + errno_text(errno));
  return fd;
}

MasterPortAsked port_asked(const AgentTask& task) {
  MasterPortAsked asked{task.options.master_port, task.options.master_port_insisted, true};
  // A lone worker may host its own store, or spawn its own workers, under that number. It does so
  // seconds later, and the usual port would be free for every such job until then.
  asked.listen = task.workers > 1;
  if ((task.options.standalone || !asked.listen) && !asked.insisted) asked.port = 0;
  return asked;
}

rendezvous::JobIdentity identity_of(const AgentTask& task, const Assignment& assignment) {
  return {.job = assignment.job,
          .epoch = assignment.epoch,
          .first_rank = assignment.first_rank,
          .local_size = assignment.local_size,
          .world_size = assignment.world_size,
          .host = task.machine.hostname,
          .failure_grace = task.options.failure_grace};
}

Agent::Agent(const AgentTask& task, const AgentSeat& seat)
    : task_(task),
      seat_(seat),
      signals_(io_, open_signals()),
      timer_(io_),
      last_words_timer_(io_),
      master_port_(take_master_port(port_asked(task))),
      assignment_(assign()),
      output_(make_output()),
      workers_({.mask = seat.original_mask,
                .descriptors = raise_descriptor_limit(),
                .give_terminal = seat.owns_terminal,
                .output = output_.get()}),
      host_(io_, identity_of(task, assignment_), *this),
      supervisor_(rules_of(task)),
      history_(task.options, task.job, task.machine.hostname) {
  assignment_.control_fd = workers_.control_number();
  assignment_.control_socket = host_.socket_name();
  if (master_port_.listener) host_.serve_c10d(std::move(master_port_.listener));
  if (!master_port_.note.empty()) say(master_port_.note);
  for (const auto& note : task.options.notes) say(note);
}

int Agent::run() {
  await_signal();
  asio::post(io_, [this] { feed(Start{}); });
  io_.run();
  return exit_code_;
}

Assignment Agent::assign() const {
  Assignment assignment;
  assignment.job = task_.job;
  assignment.local_size = assignment.world_size = task_.workers;
  assignment.master_port = master_port_.port;
  assignment.agent_store = task_.workers > 1;
  assignment.run_directory = task_.run_directory.path();
  return assignment;
}

LaunchPlan Agent::plan_attempt(int attempt) const {
  Assignment assignment = assignment_;
  assignment.attempt = attempt;
  return make_plan(task_.options, task_.machine, task_.environment, assignment);
}

std::unique_ptr<Output> Agent::make_output() const {
  const LaunchPlan plan = plan_attempt(0);
  const bool all_inherit = std::all_of(plan.workers.begin(), plan.workers.end(),
                                       [](const auto& w) { return w.stdio.inherit; });
  return all_inherit ? nullptr : std::make_unique<Output>(STDOUT_FILENO, STDERR_FILENO);
}

// ---- Events ----

void Agent::on_reported(int rank, const wire::Report& report) {
  const int blamed = report.peer < 0 ? -1 : local(report.peer);
  feed(Reported{local(rank), report.code, blamed < task_.workers ? blamed : -1});
}

void Agent::on_left(int rank) {
  const auto ended = waiting_for_last_words_.extract(local(rank));
  if (!ended.empty()) deliver(ended.mapped());
  check_all_gone();
}

void Agent::await_signal() {
  signals_.async_read_some(asio::buffer(signal_buffer_), [this](auto error, std::size_t size) {
    if (error == asio::error::operation_aborted) return;
    for (std::size_t i = 0; i < size / sizeof(signalfd_siginfo); ++i) on_signal(signal_buffer_[i]);
    await_signal();
  });
}

void Agent::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) return on_child_change();
  if (number == front_lost_signal()) return feed(FrontLost{});
  if (number != handed_on_signal() || static_cast<pid_t>(info.ssi_pid) != seat_.front) return;
  const int handed_on = info.ssi_int;
  // These come to whoever writes to a closed pipe, or uses the terminal from the background.
  if (handed_on == SIGPIPE || handed_on == SIGTTIN || handed_on == SIGTTOU) return;
  const auto& stopping = task_.options.signals;
  if (std::find(stopping.begin(), stopping.end(), handed_on) == stopping.end()) {
    return feed(OtherSignal{handed_on});
  }
  if (!draining_) return feed(StopSignal{handed_on});
  // All processes are gone; only a reader that does not read holds us.
  if (supervisor_.state() == Supervisor::State::finished) ::_exit(exit_code_);
  abandoned_ = true;
  draining_ = false;
  on_all_gone();
}

void Agent::on_child_change() {
  bool stopped = false;
  for (const auto& ended : workers_.reap(stopped)) {
    history_.add(ended);
    if (host_.is_connected(assignment_.first_rank + ended.local_rank)) {
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
      if (!error) deliver_all_waiting();
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
  if (interrupted && seat_.owns_terminal && !output_) feed(StopSignal{ended.status.signal});
  feed(Exited{ended.local_rank, ended.status});
}

void Agent::check_all_gone() {
  const bool ending = supervisor_.state() == Supervisor::State::terminating ||
                      supervisor_.state() == Supervisor::State::killing;
  if (!ending || draining_ || !workers_.nothing_left() || !waiting_for_last_words_.empty()) return;
  draining_ = true;
  timer_.cancel();
  auto all_gone = [this] {
    asio::post(io_, [this] {
      if (std::exchange(draining_, false)) on_all_gone();
    });
  };
  if (output_) {
    output_->drain(std::move(all_gone));
  } else {
    all_gone();
  }
}

void Agent::on_all_gone() {
  // The supervisor forgets the attempt when it starts the next one.
  history_.end_attempt(supervisor_, output_.get());
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

void Agent::execute(const Spawn& effect) {
  killing_ = false;
  if (effect.attempt > 0) {
    say(history_.root_cause_sentence() + "; all workers are started again (restart " +
        std::to_string(effect.attempt) + " of " + std::to_string(task_.options.max_restarts) + ")");
    if (output_) output_->forget_tails();
    host_.begin_attempt(identity_of(task_, assignment_));
  }
  history_.begin_attempt(plan_attempt(effect.attempt));
  const auto problem = workers_.start(history_.plan());
  auto controls = workers_.take_controls();
  for (std::size_t i = 0; i < controls.size(); ++i) {
    host_.expect(history_.plan().workers[i].rank, std::move(controls[i]));
  }
  if (!problem) return feed(Spawned{});
  say(problem->sentence);
  feed(SpawnFailed{problem->exit_code});
}

void Agent::execute(const PublishLoss& effect) {
  host_.publish_loss(assignment_.first_rank + effect.rank, task_.machine.hostname, effect.cause);
}

void Agent::execute(const ArmTimer& effect) {
  timer_.expires_at(effect.at);
  timer_.async_wait([this](auto error) {
    if (!error) feed(Tick{});
  });
}

void Agent::execute(const KillAll&) {
  killing_ = true;
  say_still_running();
  workers_.signal_all(SIGKILL);
  asio::post(io_, [this] { on_child_change(); });
}

void Agent::say_still_running() {
  std::string ranks;
  for (std::size_t i = 0; i < workers_.pids().size(); ++i) {
    if (workers_.pids()[i] > 0)
      ranks += " " + std::to_string(assignment_.first_rank + static_cast<int>(i));
  }
  if (!ranks.empty()) say("killing what still runs, rank" + ranks);
}

void Agent::execute(const Finish& effect) {
  exit_code_ = effect.exit_code;
  if (effect.unkillable) history_.end_attempt(supervisor_, output_.get());
  if (effect.outcome == Outcome::failed || effect.outcome == Outcome::succeeded) {
    say_lines(history_.summary(task_.options.max_restarts));
  }
  if (effect.unkillable) {
    say("some processes do not die of SIGKILL (they hang in the kernel); leaving without them");
  }
  const auto outer = lookup(task_.environment, "TORCHELASTIC_ERROR_FILE").value_or("");
  for (const auto& problem : history_.finish(effect, std::string(outer))) {
    say(problem);
    if (exit_code_ == 0) exit_code_ = exit_code::internal;
  }
  task_.run_directory.finish(history_.has_files());
  if (abandoned_) ::_exit(exit_code_);
  if (!output_) return io_.stop();
  draining_ = true;
  output_->drain([this] { asio::post(io_, [this] { io_.stop(); }); });
}

void Agent::say(const std::string& sentence) { say_lines("dlaunch: " + sentence + "\n"); }

void Agent::say_lines(const std::string& text) {
  if (text.empty()) return;
  if (output_) return output_->say(text.substr(0, text.size() - 1));
  // Where stderr is gone there is nobody left to tell.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
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
    return error.errc() == Errc::refused || error.errc() == Errc::unreachable
               ? exit_code::unreachable
               : exit_code::internal;
  } catch (const std::exception& error) {  // Out of memory, or out of what Asio needs.
    say(error);
    return exit_code::internal;
  }
}

}  // namespace dlaunch::launcher
