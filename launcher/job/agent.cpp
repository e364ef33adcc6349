#include "launcher/job/agent.hpp"

#include "launcher/job/agent_settings.hpp"
#include "launcher/job/agent_state.hpp"
#include "launcher/job/end_report.hpp"
#include "launcher/machine/descriptors.hpp"
#include "launcher/process/process_tree.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/post.hpp>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// When we learn of a worker's end, its last report may still lie in its control socket. The report
/// is read first, but for this long at most, since a process that the worker forked may hold the
/// socket open. The same limit holds for its pipes, whose reader may stand still before a blocked
/// console.
constexpr auto last_words_timeout = std::chrono::milliseconds(100);

}  // namespace

Agent::Agent(const AgentTask& task, const AgentSeat& seat)
    : task_(task),
      seat_(seat),
      signals_(io_, seat.front, *this),
      job_deadline_(
          io_, {task.deadline, task.deadline_latest, task.spec.deadline_notice},
          [this] { tell_of_job_deadline(); }, [this] { on_job_deadline(); }),
      timer_(io_),
      last_words_timer_(io_),
      late_notice_(io_),
      link_(io_, task, *this),
      console_(make_output(task,
                           [this](int rank, Clock::time_point at) {
                             asio::post(io_, [this, rank, at] { on_traceback(rank, at); });
                           }),
               voice_of(task)),
      waiting_(io_, console_),
      workers_({.mask = seat.original_mask,
                .ignore_children = seat.children_ignored,
                .descriptors = raise_descriptor_limit(),
                .give_terminal = seat.owns_terminal,
                .serves_pmi = task.mpi.pmi,
                .output = console_.output(),
                .make_cgroup = [this] { return make_cgroup(); }}),
      loan_(io_, {.front = seat.front,
                  .for_good = console_.output() == nullptr,
                  .say = [this](const std::string& sentence) { say(sentence); }}),
      unserved_mpi_(io_, [this](const std::string& sentence) { say(sentence, Level::warning); }),
      core_(link_.alone()),
      supervisor_(rules_of(task)),
      history_(task.spec, task.job, task.machine.hostname),
      run_directory_(task.run_directory),
      watch_(
          io_, task.spec.stuck_after, [this] { return host_ ? host_->shared_memory() : nullptr; },
          [this](const std::string& sentence) { say(sentence, Level::warning); }),
      health_timer_(io_) {
  times_.begun = task.begun;
  times_.agent = Clock::now();
  for (const auto& note : task.notes) say(note, Level::warning);
  heed_watch();
  MpiListener& self = *this;
  if (task.mpi.pmi || task.mpi.pmix) mpi_ = std::make_unique<MpiServer>(io_, task.mpi, self);
}

int Agent::run() {
  open_health();
  if (task_.spec.ends_with_stdin)
    input_end_.emplace(io_, task_.parent, [this] { stop_ourselves(); });
  watch_.open(task_.job, task_.machine.hostname, task_.node_id,
              {.entry = [this] { return entry(); },
               .ranks = [this] { return ranks(); },
               .drain = [this] { return drain(); },
               .store_waits = [this] { return store_waits(); }});
  const bool is_past = task_.deadline && *task_.deadline <= WallClock::now();
  asio::post(io_, [this, is_past] {
    if (is_past) return on_job_deadline();
    // A spare is checked now: an unfit one would otherwise be found only when it is needed.
    if (task_.spec.spares == 0 || link_.alone()) return link_.start();
    check_node({}, [this] { link_.start(); });
  });
  io_.run();
  // The last lines may be the ones that could not be written.
  return exit_code_ == 0 && console_.incomplete() ? exit_code::internal : exit_code_;
}

// ---- What the rendezvous says ----

void Agent::on_admitted(const rendezvous::Admission& admission) {
  waiting_.end();
  offered_ = admission;
  live(life::Admitted{{admission.incarnation, admission.epoch}});
}

void Agent::execute(const life::FindPlace&) {
  admission_ = offered_;
  check_node({admission_.incarnation, admission_.epoch}, [this] { place(); });
}

void Agent::check_node(const life::EpochName& epoch, const std::function<void()>& fit) {
  check_.reset();
  if (task_.spec.node_check.empty()) return fit();
  const NodeCheck::Setting setting{.command = task_.spec.node_check,
                                   .limit = task_.spec.node_check_timeout,
                                   .mask = seat_.original_mask};
  tell_late(own_notice_after, [this] { return check_text(); });
  check_ = std::make_unique<NodeCheck>(io_, setting, [this, epoch, fit](auto problem) {
    late_notice_.cancel();
    waiting_.end();
    if (!problem) return fit();
    unfit_for_ = *problem;
    say("this node is not fit for work: the check (--node-check) " + unfit_for_, Level::error);
    live(life::Unfit{epoch});
  });
}

void Agent::place() {
  link_.place(admission_, [this, epoch = life::EpochName{admission_.incarnation, admission_.epoch}](
                              Assignment assignment) {
    placed_ = std::move(assignment);
    meet_mpi_nodes([this, epoch] {
      signals_.take_pending();  // A pending stop signal is taken first.
      live(life::Placed{epoch});
    });
  });
}

/// MPI's ranks are told at their start who shares their node.
void Agent::meet_mpi_nodes(std::function<void()> known) {
  if (!mpi_) return known();
  mpi_->begin({.job = placed_.job,
               .host = task_.machine.hostname,
               .place = {.epoch = placed_.epoch,
                         .first_rank = placed_.first_rank,
                         .local_size = placed_.local_size,
                         .world_size = placed_.world_size}},
              link_.uplink(), std::move(known));
}

void Agent::execute(const life::Begin&) {
  waiting_.end();
  const bool again = history_.has_attempt(placed_.attempt);
  if (!history_.empty()) times_.begin_again();
  LaunchTimes::mark(times_.placed, Clock::now());
  epoch_ = {.assignment = placed_};
  epoch_.assignment.repeated_attempt = again;
  epoch_.assignment.deadline = job_deadline_.at() ? WallClock::to_time_t(*job_deadline_.at()) : 0;
  epoch_.assignment.control_fd = workers_.control_number();
  epoch_.assignment.pmi_fd = workers_.pmi_number();
  epoch_.assignment.pmix = mpi_ && mpi_->serves_pmix();
  open_host();
  host_->serve_c10d_to(store_clients(admission_));
  epoch_.assignment.control_socket = host_->socket_name();
  // For a node that has just joined this is no restart.
  const int attempt = epoch_.assignment.attempt;
  const bool restarts = attempt > 0 && !again && !history_.empty();
  console_.know_job(epoch_.assignment.job);
  if (restarts) say(*admission_.again_for + restart_text(attempt, task_.spec), Level::warning);
  if (console_.output() && !history_.empty()) console_.output()->forget_tails();
  loan_.forget();
  if (const auto note = note_of_stdin(task_.spec, epoch_.assignment)) {
    say(*note, Level::warning);
  }
  feed(Start{epoch_.assignment.attempt, epoch_.assignment.first_rank});
}

/// Opens the workers' host for the new epoch.
void Agent::open_host() {
  rendezvous::JobIdentity identity =
      identity_of(task_, epoch_.assignment, admission_, link_.host());
  if (host_) return host_->begin_attempt(std::move(identity));
  rendezvous::JobObserver& observer = *this;
  host_ = std::make_unique<rendezvous::JobHost>(io_, std::move(identity), observer, link_.uplink(),
                                                link_.take_memory_door());
  for (auto& listener : link_.take_store_listeners()) host_->serve_c10d(std::move(listener));
  if (auto* server = link_.shared_server()) host_->share_c10d(*server);
}

void Agent::on_order(std::uint64_t epoch, StopOrder::Manner manner) {
  live(life::Ordered{epoch, manner});
}

void Agent::on_ranks_lost(const rendezvous::RanksLost& lost) {
  watch_.lost(lost);
  if (!host_ || gang_is_gone()) return;
  for (int rank = lost.first_rank; rank < lost.first_rank + lost.count; ++rank) {
    host_->publish_loss(rank, lost.host, lost.how);
  }
  if (!lost.how.left() || !epoch_.left_elsewhere.empty()) return;
  epoch_.left_elsewhere = "rank " + std::to_string(lost.first_rank) + " on " + lost.host;
  feed(LeftElsewhere{});
}

void Agent::on_finished(const rendezvous::Finish& end, bool judged) {
  if (core_.is_decided()) return;
  const std::string said = (judged ? "the job ends: " : "") + end.sentence;
  // The summary tells what our own ranks did.
  const bool here = end.verdict && is_ours(end.verdict->rank());
  const bool tells = !end.sentence.empty() && !(judged && (here || end.exit_code == 0));
  waiting_.end();
  history_.job_ended(end, tells);
  // The summary block at the end repeats it.
  const bool told_later = end.exit_code == 0 || history_.tells_end();
  if (tells) say(said, told_later ? Level::warning : Level::error);
  const bool node_lost = end.cause == rendezvous::Finish::Cause::node_lost;
  // If nobody was left to judge the end, the lost node is the one that held the store.
  if (host_ && node_lost && !judged) host_->lose_store(end.sentence);
  live(life::JobOver{end.exit_code, node_lost});
}

// ---- Signals ----

void Agent::on_front_lost() {
  feed(FrontLost{});
  live(life::FrontGone{});
}

void Agent::on_handed_on(int number) {
  const auto& stopping = task_.spec.signals;
  if (std::find(stopping.begin(), stopping.end(), number) == stopping.end()) {
    if (number == SIGTSTP || number == SIGCONT) watch_.suspend(number == SIGTSTP);
    return feed(OtherSignal{number});
  }
  // Failures that were seen before the signal are judged first.
  while (!waiting_for_output_.empty()) deliver_read({waiting_for_output_.begin()->first});
  const bool first = !is_ending() || (epoch_.stopping && epoch_.stopping->signal == 0);
  if (first) tell_stopping_later(number);
  epoch_.wants_no_stacks = true;
  feed(StopSignal{number});
  live(life::Signalled{number, code_of_stop(128 + number)});
}

void Agent::on_job_deadline() {
  if (core_.is_decided()) return;
  while (!waiting_for_output_.empty()) deliver_read({waiting_for_output_.begin()->first});
  say(deadline_sentence(*job_deadline_.at()) +
          (gang_is_gone() ? ": the job ends" : ": the workers are stopped"),
      Level::warning);
  feed(Expired{});
  live(life::Expired{code_of_stop(exit_code::preempted)});
}

/// A failure before the signal, or the deadline, gives the exit code, told or not. So does a
/// success on a node that is alone; among several nothing has succeeded before they are told so.
int Agent::code_of_stop(int otherwise) const {
  const Ended now = supervisor_.verdict();
  const bool settled =
      now.outcome == Outcome::failed || (now.outcome == Outcome::succeeded && link_.alone());
  const bool counts = !gang_is_gone() || state() == JobState::ended;
  return settled && counts ? now.exit_code : otherwise;
}

// ---- Workers ----

void Agent::on_joined(int rank) {
  LaunchTimes::mark(times_.joined, Clock::now());
  watch_.joined(local(rank));
  feed(Joined{local(rank)});
}

void Agent::on_reported(int rank, const wire::Report& report) {
  watch_.reported(report.code);
  if (report.code == Errc::timeout) epoch_.timed_out = true;
  if (report.claim.fault != Fault::own) history_.reported(rank, report.sentence);
  feed(Reported{local(rank), report.claim});
}

void Agent::on_left(int rank) {
  const auto ended = waiting_for_last_words_.extract(local(rank));
  if (!ended.empty()) deliver(ended.mapped());
  check_all_gone();
}

void Agent::on_child_change() {
  std::vector<Workers::Stopped> stopped;
  std::vector<Workers::Ended> failed;
  const auto others = [this](pid_t pid, const ExitStatus& status) {
    if (check_ && check_->pid() == pid) check_->ended(status);
    if (stacks_ && stacks_->pid() == pid) stacks_->ended(status);
  };
  for (auto ended : workers_.reap(stopped, others)) {
    if (mpi_) ended.status = mpi_->ended(ended.local_rank, ended.status);
    LaunchTimes::mark(times_.first_ended, Clock::now());
    history_.add(ended);
    watch_.ended(ended);
    if (host_->is_connected(epoch_.assignment.first_rank + ended.local_rank)) {
      waiting_for_last_words_.emplace(ended.local_rank, ended);
    } else if (console_.output() && !ended.status.succeeded() && !is_ending()) {
      failed.push_back(ended);
    } else {
      deliver(ended);
    }
  }
  show_who_still_runs();
  deliver_when_read(failed);
  take_stops(stopped);
  if (is_killing() && !workers_.nothing_left()) workers_.signal_all(SIGKILL);
  if (!waiting_for_last_words_.empty()) {
    last_words_timer_.expires_after(last_words_timeout);
    last_words_timer_.async_wait([this](auto error) {
      // If this process had to wait for a processor, the last words may lie in the socket by now.
      if (!error) asio::post(io_, [this] { asio::post(io_, [this] { deliver_all_waiting(); }); });
    });
  }
  check_all_gone();
}

/// A cgroup for the attempt's workers. Without one, only their parents lead to them.
std::unique_ptr<OwnCgroup> Agent::make_cgroup() {
  const auto parent = task_.spec.own_cgroup ? own_cgroup_directory() : std::nullopt;
  return parent ? OwnCgroup::make(io_, *parent, [this] { on_child_change(); }) : nullptr;
}

void Agent::on_traceback(int rank, Clock::time_point at) {
  if (is_ours(rank)) feed(SaidTraceback{local(rank), at});
}

/// The first worker to end need not be the first that failed, so the output of all of them is read
/// before any end is judged.
void Agent::deliver_when_read(const std::vector<Workers::Ended>& ended) {
  if (ended.empty()) return;
  std::vector<int> ranks;
  for (const auto& one : ended) {
    ranks.push_back(one.local_rank);
    waiting_for_output_.emplace(one.local_rank, one);
  }
  const auto deliver_them = [this, ranks, epoch = epoch_.assignment.epoch] {
    if (epoch == epoch_.assignment.epoch) deliver_read(ranks);
  };
  console_.output()->catch_up([this, deliver_them] { asio::post(io_, deliver_them); });
  auto timer = std::make_shared<asio::steady_timer>(io_, last_words_timeout);
  timer->async_wait([timer, deliver_them](auto) { deliver_them(); });
}

void Agent::deliver_read(const std::vector<int>& local_ranks) {
  bool some = false;
  for (const int rank : local_ranks) {
    const auto ended = waiting_for_output_.extract(rank);
    if (ended.empty()) continue;
    some = true;
    deliver(ended.mapped());
  }
  if (some) check_all_gone();
}

void Agent::take_stops(const std::vector<Workers::Stopped>& stopped) {
  bool suspended = false;
  for (const auto& [local_rank, pid, number] : stopped) {
    const bool wants_terminal = number == SIGTTIN || number == SIGTTOU;
    if (wants_terminal) loan_.ask(pid, epoch_.assignment.first_rank + local_rank);
    if (!wants_terminal && number != SIGSTOP) suspended = true;
  }
  // Ctrl-Z in a worker that has the terminal: the shell waits for our front to stop.
  if (!suspended || !seat_.owns_terminal) return;
  watch_.suspend(true);
  ::kill(seat_.front, SIGTSTP);
}

void Agent::deliver_all_waiting() {
  for (const auto& [rank, ended] : std::exchange(waiting_for_last_words_, {})) deliver(ended);
  check_all_gone();
}

void Agent::deliver(const Workers::Ended& ended) {
  // A worker that has the terminal gets Ctrl-C itself; if it dies of that, the user wants to stop.
  const bool interrupted = ended.status.signal == SIGINT || ended.status.signal == SIGQUIT;
  const bool had_terminal =
      loan_.was_lent_to(ended.pid) || (seat_.owns_terminal && !console_.output());
  if (interrupted && had_terminal) on_handed_on(ended.status.signal);
  note_timeout(ended);
  feed(Exited{ended.local_rank, ended.status});
}

void Agent::check_all_gone() {
  const bool waiting = !waiting_for_last_words_.empty() || !waiting_for_output_.empty();
  if (!is_ending() || core_.is_winding_up() || !workers_.nothing_left() || waiting) return;
  live(life::NothingLeft{});
}

/// If this process stood still, the awaited event may have come and not been read yet.
void Agent::on_deadline() {
  signals_.take_pending();
  if (is_killing()) on_child_change();
  // All workers are dead: their last words and their output are awaited under limits of their own.
  if (core_.is_winding_up() || (is_killing() && workers_.nothing_left())) return;
  look_for_ready();
  feed(Tick{});
}

/// Looks whether overdue workers are ready, since some signs of that come without notice.
void Agent::look_for_ready() {
  const auto overdue = supervisor_.overdue(Clock::now());
  if (overdue.empty()) return;
  for (const int rank : overdue) {
    if (mpi_ && mpi_->has_begun(rank)) feed(Ready{rank});
  }
  for (const pid_t pid : processes_connected_to(epoch_.assignment.master_port)) {
    const int rank = workers_.local_rank_of(pid);
    if (rank >= 0) feed(Ready{rank});
  }
}

void Agent::live(const life::Event& event) {
  happened_.push_back(event);
  if (std::exchange(living_, true)) return;
  for (; !happened_.empty(); happened_.pop_front()) {
    for (const auto& effect : core_.step(happened_.front())) {
      std::visit([this](const auto& e) { execute(e); }, effect);
    }
  }
  living_ = false;
  if (health_) health_->turned(unready_text(state()));
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
  if (health_) health_->turned(unready_text(state()));
}

int run_agent(const AgentTask& task, const AgentSeat& seat) {
  Console console(nullptr, voice_of(task));
  reserve_descriptors(task.workers);
  try {
    return Agent(task, seat).run();
  } catch (const Error& error) {
    console.say(error.what(), Level::error);
    const bool away = error.errc() == Errc::refused || error.errc() == Errc::unreachable;
    return away ? exit_code::unreachable : exit_code::internal;
  } catch (const std::exception& error) {  // Out of memory, or out of what Asio needs.
    console.say(error.what(), Level::error);
    return exit_code::internal;
  }
}

}  // namespace dlaunch::launcher
