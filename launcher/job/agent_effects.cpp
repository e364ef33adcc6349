#include "launcher/hang/timeout_words.hpp"
#include "launcher/job/agent_settings.hpp"
#include "launcher/job/agent_state.hpp"
#include "launcher/job/end_report.hpp"
#include "launcher/plan/environment.hpp"
#include "launcher/report/flight_report.hpp"
#include "rendezvous/service/messages.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/segment/calls_made.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// How long after a signal that ends the job the workers that still run are named.
constexpr auto user_notice_after = std::chrono::seconds(1);
/// The tools usually need less than a second.
constexpr auto stacks_notice_after = std::chrono::seconds(2);

/// Empty where the file cannot be read; a long one is cut.
std::string first_line(const std::string& path) {
  constexpr std::size_t shown = 400;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.size() > shown ? line.substr(0, shown) + "..." : line;
}

}  // namespace

// ---- Effects ----

void Agent::execute(const Spawn&) {
  const auto no_directory = run_directory_.make(epoch_.assignment.job);
  epoch_.assignment.run_directory = run_directory_.path();
  open_notify_pipe();
  LaunchPlan plan = plan_of(task_, epoch_.assignment);
  for (int i = 0; epoch_.assignment.pmix && i < task_.workers; ++i) {
    WorkerSpec& worker = plan.workers[static_cast<std::size_t>(i)];
    for (auto& variable : mpi_->pmix_variables(i)) {
      const std::string_view name(variable.data(), variable.find('='));
      // A variable that the user has set wins.
      if (lookup(plan.programs[worker.program].environment, name)) continue;
      worker.own_environment.push_back(std::move(variable));
    }
  }
  history_.begin_attempt(std::move(plan));
  watch_.begin(epoch_.assignment, task_.machine.hostname, task_.node_id);
  if (auto* line = link_.line()) {
    watch_.begin_with_others(epoch_.assignment, *line, *admission_.roster);
  }
  const auto problem = no_directory && task_.spec.log_dir
                           ? StartProblem{exit_code::unreachable, *no_directory}
                           : workers_.start(history_.plan());
  if (!problem) LaunchTimes::mark(times_.started, Clock::now());
  if (workers_.cgroup() != nullptr) history_.know_cgroup(workers_.cgroup()->path());
  watch_.started(workers_.pids());
  auto controls = workers_.take_controls();
  for (std::size_t i = 0; i < controls.size(); ++i) {
    host_->expect(history_.plan().workers[i].rank, std::move(controls[i]));
  }
  auto pmi_sockets = workers_.take_pmi_sockets();
  for (std::size_t i = 0; i < pmi_sockets.size(); ++i) {
    mpi_->serve(static_cast<int>(i), std::move(pmi_sockets[i]));
  }
  const bool several = epoch_.assignment.world_size > 1;
  if (several && !mpi_ && task_.spec.mpi == MpiAsked::automatic) {
    unserved_mpi_.begin(workers_.pids(), epoch_.assignment.first_rank);
  }
  if (!problem) {
    say_where_logs_are(no_directory);
    return feed(Spawned{});
  }
  say(problem->sentence, Level::error);
  epoch_.start_problem = problem->sentence;
  feed(SpawnFailed{problem->exit_code});
}

void Agent::execute(const PublishLoss& effect) {
  const int rank = epoch_.assignment.first_rank + effect.rank;
  const Departure how = Departure::of(effect.fact);
  host_->publish_loss(rank, task_.machine.hostname, how);
  if (effect.fact.failed() && !core_.is_leaving()) {
    link_.seat()->tell(rendezvous::WorkerFailed{0, epoch_.assignment.epoch, effect.fact});
  } else if (how.left() && !core_.is_leaving()) {
    link_.seat()->tell(rendezvous::WorkerLeft{0, epoch_.assignment.epoch, rank});
  }
}

void Agent::execute(const SignalAll& effect) {
  LaunchTimes::mark(times_.first_ended, Clock::now());
  stacks_.reset();
  const bool wanted = task_.spec.stack_on_timeout && !epoch_.wants_no_stacks;
  if (wanted && (epoch_.timed_out || watch_.holds_up_others())) return take_stacks(effect.number);
  workers_.stop_all(effect.number);
  if (is_ending() && !epoch_.stopping) tell_stopping_later(0);
}

void Agent::execute(const HandOn& effect) { workers_.signal_all(effect.number); }

/// PyTorch's calls have timeouts of their own: a rank fails while the rank that it waited for still
/// runs.
void Agent::note_timeout(const Workers::Ended& ended) {
  const bool wanted = task_.spec.stack_on_timeout && !ended.status.succeeded() && !is_ending();
  if (!wanted || !console_.output()) return;
  const int rank = epoch_.assignment.first_rank + ended.local_rank;
  if (tells_timeout(console_.output()->error_tail(rank))) epoch_.timed_out = true;
}

/// The workers are signalled only after their stacks were taken, early enough to end by themselves
/// before they would be killed.
void Agent::take_stacks(int signal_afterwards) {
  epoch_.wants_no_stacks = true;
  constexpr auto limit_max = std::chrono::seconds(30);
  const Assignment& own = epoch_.assignment;
  const StackDump::Setting setting{
      .job = own.job,
      .first_rank = own.first_rank,
      .last_rank = own.first_rank + own.local_size - 1,
      .file = history_.plan().stacks_file,
      .output = console_.output(),
      .limit = std::min<Clock::duration>(limit_max, task_.spec.shutdown_timeout / 2),
      .mask = seat_.original_mask};
  const std::string under_way = "the ranks' stacks are being taken (--stack-on-timeout), for " +
                                duration_text(setting.limit) + " at most";
  tell_late(stacks_notice_after, [under_way] { return under_way; });
  epoch_.stopping = {0, Clock::now() + task_.spec.shutdown_timeout};
  const auto taken = [this, signal_afterwards, epoch = own.epoch](auto problem) {
    if (epoch != epoch_.assignment.epoch || supervisor_.state() != Supervisor::State::terminating) {
      return;
    }
    const auto& file = history_.plan().stacks_file;
    if (problem) {
      say("the ranks' stacks could not be taken: " + *problem, Level::warning);
    } else if (file) {
      history_.wrote_stacks(first_line(*file));
      say("the ranks' stacks are in " + *file);
    }
    workers_.stop_all(signal_afterwards);
    tell_stopping_later(0);
  };
  stacks_ = std::make_unique<StackDump>(io_, setting, taken);
}

void Agent::execute(const TellStragglers& effect) {
  if (effect.over) epoch_.timed_out = true;
  epoch_.no_progress =
      straggler_sentence(effect, epoch_.assignment.first_rank, epoch_.left_elsewhere);
  say(epoch_.no_progress + straggler_outlook(effect, task_.spec),
      effect.over ? Level::error : Level::warning);
}

void Agent::execute(const TellUnready& effect) {
  epoch_.timed_out = true;
  epoch_.no_progress =
      unready_sentence(effect, epoch_.assignment.first_rank, task_.spec.ready_timeout);
  epoch_.unready = epoch_.assignment.first_rank + effect.ranks.front();
  say(epoch_.no_progress + ": the attempt is ended (--ready-timeout)", Level::error);
}

void Agent::execute(const ArmTimer& effect) {
  timer_.expires_at(effect.at);
  timer_.async_wait([this](auto error) {
    if (!error) on_deadline();
  });
}

void Agent::execute(const KillAll&) {
  stacks_.reset();
  late_notice_.cancel();
  waiting_.end();
  const auto ranks = ranks_running(workers_.pids(), epoch_.assignment.first_rank);
  if (!ranks.empty()) say("killing what still runs, " + ranks_text(ranks), Level::warning);
  workers_.signal_all(SIGKILL);
  asio::post(io_, [this] { on_child_change(); });
}

void Agent::execute(const Ended& effect) {
  last_end_ = effect;
  if (effect.outcome != Outcome::succeeded) watch_.tell_disagreement();
  if (effect.unkillable) {
    hanging_ = hanging_among(workers_.left());
    history_.end_attempt(supervisor_, console_);
  }
  history_.attempt_ended(effect);
  live(effect);
}

/// Called at the end, since a rank's last line is known only then.
void Agent::tell_words_of_unready() {
  if (!epoch_.unready || !console_.output()) return;
  const auto lines = console_.output()->error_tail(*epoch_.unready);
  if (lines.empty()) return;
  const std::string words =
      "rank " + std::to_string(*epoch_.unready) + " wrote last: " + clipped(lines.back());
  say(words, Level::error);
  epoch_.no_progress += "; " + words;
}

void Agent::execute(const life::Report&) {
  const Ended& end = last_end_;
  if (end.outcome == Outcome::succeeded || end.outcome == Outcome::failed) {
    const NodeSnapshot node = watch_.sight(FlightRing::records_max);
    std::vector<RankFlight> ranks;
    for (const auto& rank : node.ranks) ranks.push_back({rank.rank, rank.ring, &rank.log});
    link_.seat()->tell(rendezvous::CallsMade{0, epoch_.assignment.epoch,
                                             calls_made(ranks, rendezvous::message::calls_max)});
  }
  tell_words_of_unready();
  rendezvous::WorkersEnded how =
      report_of(end, epoch_.assignment, task_.machine.hostname, epoch_.start_problem);
  if (end.outcome == Outcome::failed && !end.verdict) {
    how.sentence = epoch_.no_progress.empty() ? "a worker failed" : epoch_.no_progress;
  }
  how.facts = supervisor_.facts();
  how.details = history_.details(how.facts);
  link_.seat()->tell(how);
}

/// A note if --mpi asked for a protocol by name and no rank has used it.
std::optional<std::string> Agent::note_of_unused_mpi() const {
  const bool by_name = task_.spec.mpi == MpiAsked::pmi || task_.spec.mpi == MpiAsked::pmix;
  if (!by_name || epoch_.assignment.world_size < 2 || mpi_->was_used()) return std::nullopt;
  return task_.mpi.why + ": no rank of " + task_.machine.hostname +
         " has asked for its rank by it; if the program uses MPI, each rank was a world of its own";
}

/// Without --log-dir only the launcher knows where the logs are, or that there are none.
void Agent::say_where_logs_are(const std::optional<std::string>& no_directory) {
  if (task_.spec.log_dir || !wants_logs(task_.spec)) return;
  if (std::exchange(told_of_logs_, true)) return;
  say(no_directory ? *no_directory + "; all output goes to the console"
                   : "the workers' logs are in " + run_directory_.path());
}

// ---- The end ----

void Agent::execute(const life::Decline& effect) {
  rendezvous::WorkersEnded how;
  how.epoch = effect.epoch;
  how.outcome = rendezvous::WorkersEnded::Outcome::stopped;
  link_.seat()->tell(how);
}

void Agent::execute(const life::Stop& effect) {
  epoch_.failed_elsewhere = effect.manner == StopOrder::Manner::report_first;
  feed(StopOrder{effect.manner});
}

void Agent::execute(const life::Leave& effect) {
  Seat* seat = link_.seat();
  if (seat == nullptr) return;
  const auto leave = [&](const std::string& reason) {
    seat->tell(rendezvous::Leave{0, effect.exit_code, reason});
  };
  switch (effect.why) {
    case life::Leave::Why::signal:
      return leave(drained_ ? "it is drained (dlaunch drain)"
                            : "stopped by " + signal_name(effect.signal));
    case life::Leave::Why::expired:
      return seat->tell(rendezvous::Leave{.exit_code = effect.exit_code,
                                          .reason = deadline_sentence(*job_deadline_.at()),
                                          .ends_job = true});
    case life::Leave::Why::front_lost:
      return leave("its front process was lost");
    case life::Leave::Why::unkillable:
      return leave("its workers cannot be killed");
    case life::Leave::Why::unfit:
      return leave("it is not fit for work: its check " + unfit_for_);
  }
}

void Agent::execute(const life::Drain&) {
  timer_.cancel();
  late_notice_.cancel();
  waiting_.end();
  console_.drain([this] { asio::post(io_, [this] { live(life::Drained{}); }); });
}

/// Node rank 0 writes the flight of all nodes; the others wait for that before they go.
void Agent::execute(const life::Gather& effect) {
  const auto gathered = [this](JobSnapshot flight) {
    flight_ = std::move(flight);
    live(life::Gathered{});
  };
  const bool first = epoch_.assignment.node_rank == 0 && effect.asks;
  const bool failed = supervisor_.verdict().outcome == Outcome::failed;
  if (!history_.plan().flight_file || !(failed || (first && epoch_.failed_elsewhere))) {
    return gathered({});
  }
  constexpr auto detail = AskSnapshot::Detail::flight;
  if (!first) return gathered({{watch_.snapshot(detail)}});
  watch_.ask(detail, gathered);
}

void Agent::execute(const life::Conclude&) {
  LaunchTimes::mark(times_.nothing_left, Clock::now());
  watch_.stop();
  unserved_mpi_.stop();
  if (const auto note = note_of_unused_mpi()) say(*note, Level::warning);
  if (flight_.has_calls()) {
    const auto problem = history_.write_flight(flight_json(flight_));
    if (problem) say(*problem, Level::error);
  }
  for (const auto& file : history_.end_attempt(supervisor_, console_)) feed(file);
  workers_.end();
  feed(AllGone{});
}

void Agent::execute(const life::Finish& effect) {
  exit_code_ = effect.exit_code;
  check_.reset();
  const JobEnd end = job_end(last_end_, exit_code_, core_.is_leaving(), history_.empty());
  if (core_.is_abandoned()) return tell_and_stop(end);
  link_.close([this, end] { tell_and_stop(end); });
}

void Agent::tell_and_stop(JobEnd end) {
  if (end.outcome == Outcome::failed || end.outcome == Outcome::succeeded) {
    const auto block = history_.summary(task_.spec.max_restarts, end.exit_code);
    if (block) say_block(*block);
  }
  say_timings();
  if (last_end_.unkillable) {
    const std::string which = hanging_.empty() ? "" : ": " + hanging_text(hanging_);
    say("some processes do not die of SIGKILL (they hang in the kernel); leaving without them" +
            which,
        Level::error);
  }
  // The workers' output has been drained. If a part was lost, the job must not pass for successful.
  if (exit_code_ == 0 && console_.incomplete()) end.exit_code = exit_code_ = exit_code::internal;
  const auto outer = lookup(task_.environment, "TORCHELASTIC_ERROR_FILE").value_or("");
  for (const auto& problem : history_.finish(end, std::string(outer))) {
    say(problem, Level::error);
    if (exit_code_ == 0) exit_code_ = exit_code::internal;
  }
  notify_pipe_.reset();
  run_directory_.finish(history_.has_files());
  watch_.tell_end(exit_code_);
  if (core_.is_abandoned()) ::_exit(exit_code_);
  console_.drain([this] { asio::post(io_, [this] { io_.stop(); }); });
}

// ---- What the user reads ----

/// Timings that were asked for are printed even with --quiet.
void Agent::say_timings() {
  if (history_.empty()) return;
  const auto phases = phases_of(times_);
  history_.timed(phases);
  const Voice& voice = console_.voice();
  const Timings asked = task_.spec.timings;
  if (asked == Timings::json || (asked == Timings::text && voice.json)) {
    console_.say_lines(
        timings_json(phases, voice.job, voice.node, epoch_.assignment.attempt, WallClock::now()));
  } else if (asked == Timings::text) {
    console_.say_lines("dlaunch: timings: " + timings_text(phases) + "\n");
  }
}

/// A step that takes long is told once; on a terminal it stays in one row.
void Agent::tell_late(Clock::duration after, std::function<std::string()> text) {
  waiting_.end();
  late_notice_.expires_after(after);
  late_notice_.async_wait([this, text = std::move(text)](auto error) {
    if (error) return;
    if (auto sentence = text(); !sentence.empty()) waiting_.show(std::move(sentence));
  });
}

/// The notice comes late on purpose: most workers end before anybody could read it.
void Agent::tell_stopping_later(int signal_number) {
  // The shutdown timeout counts from the first reason to stop.
  const bool stops_already = is_ending() && epoch_.stopping;
  const auto killed_at =
      stops_already ? epoch_.stopping->killed_at : Clock::now() + task_.spec.shutdown_timeout;
  epoch_.stopping = {signal_number, killed_at};
  const bool asked = signal_number != 0;
  tell_late(asked ? Clock::duration(user_notice_after) : own_notice_after,
            [this] { return stopping_text(); });
}

std::string Agent::stopping_text() const {
  const auto ranks = ranks_running(workers_.pids(), epoch_.assignment.first_rank);
  const auto& stopping = epoch_.stopping;
  if (!stopping || ranks.empty() || supervisor_.state() != Supervisor::State::terminating)
    return "";
  return stopping_sentence(stopping->signal, ranks, stopping->killed_at - Clock::now());
}

void Agent::show_who_still_runs() {
  if (auto text = stopping_text(); !text.empty()) waiting_.change(std::move(text));
}

std::string Agent::check_text() const {
  if (!check_ || check_->pid() < 0) return "";
  return "the check of this node (--node-check) runs, for " +
         duration_text(task_.spec.node_check_timeout) + " at most";
}

void Agent::tell_of_job_deadline() {
  if (core_.is_decided() || is_ending()) return;
  const int number = task_.spec.deadline_signal;
  std::vector<int> told = workers_.signal_catchers(number);
  for (int& rank : told) rank += epoch_.assignment.first_rank;
  const bool have_workers = !ranks_running(workers_.pids(), 0).empty();
  const auto at = *job_deadline_.at();
  say(deadline_notice(at, at - WallClock::now()) + (have_workers ? told_text(number, told) : ""),
      Level::warning);
}

void Agent::say_block(const FailureBlock& block) {
  if (!console_.voice().json) return console_.say_lines(to_text(block));
  Remark remark{Level::error, block.title + ": " + block.fields.front().text, "failed", block.rank};
  for (const auto& [label, text, lines] : block.fields) {
    std::string whole = lines.empty() ? text : "";
    for (const auto& line : lines) whole += line + "\n";
    remark.details.emplace_back(label, std::move(whole));
  }
  console_.say(remark);
}

}  // namespace dlaunch::launcher
