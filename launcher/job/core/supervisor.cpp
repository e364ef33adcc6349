#include "launcher/job/core/supervisor.hpp"

#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace dlaunch::launcher {
namespace {

using Manner = StopOrder::Manner;

Manner stricter(Manner a, Manner b) {
  for (const Manner strict : {Manner::kill, Manner::at_once}) {
    if (a == strict || b == strict) return strict;
  }
  return Manner::report_first;
}

}  // namespace

Supervisor::Supervisor(SupervisorRules rules)
    : rules_(rules),
      attempt_{.workers = std::vector<WorkerRecord>(static_cast<std::size_t>(rules.workers))} {}

Effects Supervisor::step(const Event& event, Clock::time_point now) {
  now_ = now;
  effects_.clear();
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(effects_, {});
}

void Supervisor::on(const Start& e) {
  if (state_ == State::idle && !stop_signal_ && !expired_ && !front_lost_) begin_attempt(e);
}

void Supervisor::on(const Spawned&) {
  if (state_ != State::starting) return;
  // Events that came while the workers were being started are judged now.
  state_ = State::running;
  if (rules_.ready_timeout > Clock::duration::zero()) {
    attempt_.ready_by = deadline_after(rules_.ready_timeout, now_);
  }
  if (front_lost_) return kill();
  if (stop_signal_) return terminate(*stop_signal_);
  if (expired_) return terminate(SIGTERM);
  if (attempt_.order) return on(StopOrder{*attempt_.order});
  judge_running();
}

void Supervisor::on(const SpawnFailed& e) {
  if (state_ != State::starting) return;
  attempt_.spawn_failure_code = e.exit_code;
  kill();
}

void Supervisor::on(const Exited& e) {
  auto& worker = attempt_.workers.at(static_cast<std::size_t>(e.rank));
  if (worker.exit || state_ == State::idle) return;
  worker.exit = e.status;
  worker.ended = now_;
  worker.stopped_by_us = state_ == State::terminating || state_ == State::killing;
  if (worker.exit->succeeded() && !attempt_.first_success) attempt_.first_success = now_;

  publish_losses();
  switch (state_) {
    case State::running:
      return judge_running();
    case State::grace:
      return judge_grace();
    case State::terminating:
      // Processes that the workers left behind have had their SIGTERM, and serve nobody now.
      if (all_exited()) kill();
      return;
    case State::idle:
    case State::starting:
    case State::killing:
      return;
  }
}

void Supervisor::on(const Joined& e) {
  attempt_.workers.at(static_cast<std::size_t>(e.rank)).member = true;
  publish_losses();
}

void Supervisor::on(const Ready& e) {
  attempt_.workers.at(static_cast<std::size_t>(e.rank)).ready = true;
}

void Supervisor::on(const Reported& e) {
  auto& worker = attempt_.workers.at(static_cast<std::size_t>(e.rank));
  // The first report tells the cause; later ones are its echo.
  if (!worker.claim || now_ - worker.claimed > claim_holds_for) {
    worker.claim = e.claim;
    worker.claimed = now_;
  }
  if (state_ == State::grace) judge_grace();
}

void Supervisor::on(const GaveUp& e) {
  auto& worker = attempt_.workers.at(static_cast<std::size_t>(e.rank));
  const bool ending = state_ == State::terminating || state_ == State::killing;
  if (worker.exit || worker.gave_up || ending || state_ == State::idle) return;
  worker.gave_up = {e.exit_code, now_};
  if (state_ == State::running) judge_running();
}

/// A traceback after our signal may be the answer to it.
void Supervisor::on(const SaidTraceback& e) {
  auto& worker = attempt_.workers.at(static_cast<std::size_t>(e.rank));
  const bool ending = state_ == State::terminating || state_ == State::killing;
  if (worker.exit || ending || state_ == State::idle) return;
  auto& times = worker.tracebacks;
  std::erase_if(times, [&](auto at) { return e.at - at > traceback_holds_for; });
  times.push_back(e.at);
}

void Supervisor::on(const WroteErrorFile& e) {
  attempt_.workers.at(static_cast<std::size_t>(e.rank)).wrote_error_file = e.at;
}

void Supervisor::on(const LeftElsewhere&) {
  if (state_ == State::idle || attempt_.first_success) return;
  attempt_.first_success = now_;
  if (state_ == State::running) arm_running();
}

void Supervisor::on(const Stalled&) {
  if (state_ != State::running) return;
  attempt_.no_progress = true;
  terminate(SIGTERM);
}

void Supervisor::on(const StopSignal& e) {
  const auto turn = stop_signals_.take(e.number);
  if (turn == StopSignals::Turn::first) {
    stop_signal_ = e.number;
    if (!expired_) settled_before_stop_ = is_settled();
  }
  if (!has_running() || turn == StopSignals::Turn::hangup) return;
  if (turn == StopSignals::Turn::again) return kill();
  if (state_ != State::terminating) return terminate(e.number);
  effects_.push_back(SignalAll{e.number});
}

/// A signal after the deadline still counts as the first one: the scheduler sends it at the end of
/// its own time.
void Supervisor::on(const Expired&) {
  if (stop_signal_ || expired_) return;
  expired_ = true;
  settled_before_stop_ = is_settled();
  if (has_running() && state_ != State::terminating) terminate(SIGTERM);
}

void Supervisor::on(const StopOrder& e) {
  if (state_ == State::idle) return;
  const auto manner = attempt_.order ? stricter(*attempt_.order, e.manner) : e.manner;
  attempt_.order = manner;
  if (!has_running()) return;
  if (manner == Manner::kill) return kill();
  if (state_ == State::terminating) return;
  if (manner == Manner::at_once) return terminate(SIGTERM);
  if (state_ == State::running) begin_grace();
}

void Supervisor::on(const OtherSignal& e) {
  if (has_running()) effects_.push_back(HandOn{e.number});
}

void Supervisor::on(const Tick&) {
  if (!attempt_.deadline || now_ < *attempt_.deadline) return;
  if (now_ - *attempt_.deadline > rules_.late_tick) return forgive_own_stall();
  switch (state_) {
    case State::grace:
      return end_grace();
    case State::terminating:
      return kill();
    case State::killing:
      return conclude(true);
    case State::running:
      return judge_time();
    case State::idle:
    case State::starting:
      return;
  }
}

/// A tick this late means that this process or its machine stood still. The workers that are waited
/// for may have stood still, too, so they get their time again.
void Supervisor::forgive_own_stall() {
  switch (state_) {
    case State::grace:
      return arm(rules_.failure_grace);
    case State::terminating:
      return arm(rules_.shutdown_timeout);
    case State::killing:
      return arm(rules_.kill_timeout);
    case State::running:
      for (auto* since : {&attempt_.first_success, &attempt_.ready_by}) {
        if (*since) **since += now_ - *attempt_.deadline;
      }
      return arm_running();
    case State::idle:
    case State::starting:
      return;
  }
}

void Supervisor::on(const AllGone&) {
  if (state_ == State::terminating || state_ == State::killing) conclude(false);
}

void Supervisor::on(const FrontLost&) {
  front_lost_ = true;
  if (has_running()) kill();
}

void Supervisor::begin_attempt(const Start& start) {
  attempt_ = {.number = start.attempt,
              .first_rank = start.first_rank,
              .workers = std::vector<WorkerRecord>(attempt_.workers.size())};
  state_ = State::starting;
  effects_.push_back(Spawn{attempt_.number});
}

/// Members hear of every end: also of a process that ended cleanly and never was one, since their
/// world cannot form without it.
void Supervisor::publish_losses() {
  const bool someone_listens =
      rules_.peers_elsewhere || std::any_of(attempt_.workers.begin(), attempt_.workers.end(),
                                            [](const auto& w) { return w.member && !w.exit; });
  if (!someone_listens || state_ == State::idle) return;
  for (std::size_t rank = 0; rank < attempt_.workers.size(); ++rank) {
    auto& worker = attempt_.workers[rank];
    if (!worker.exit || worker.published) continue;
    worker.published = true;
    effects_.push_back(PublishLoss{static_cast<int>(rank), fact_of(rank)});
  }
}

void Supervisor::judge_running() {
  if (all_exited()) return kill();
  if (!someone_failed() || rules_.continue_on_failure) return arm_running();
  begin_grace();
}

/// Arms the stragglers' timer from the first good end on; most often the others follow within
/// moments.
void Supervisor::arm_running() {
  std::optional<Clock::time_point> next = attempt_.ready_by;
  const auto consider = [&](Clock::duration after) {
    const auto when = deadline_after(after, *attempt_.first_success);
    next = std::min(next.value_or(when), when);
  };
  const auto zero = Clock::duration::zero();
  if (attempt_.first_success && rules_.straggler_timeout > zero) {
    consider(rules_.straggler_timeout);
  }
  if (attempt_.first_success && rules_.straggler_notice > zero && !attempt_.told_stragglers) {
    consider(rules_.straggler_notice);
  }
  if (next) arm(*next - now_);
}

void Supervisor::judge_time() {
  attempt_.deadline.reset();
  if (attempt_.ready_by && *attempt_.ready_by <= now_) judge_readiness();
  if (state_ != State::running) return;
  has_stragglers_due() ? judge_stragglers() : arm_running();
}

std::vector<int> Supervisor::overdue(Clock::time_point now) const {
  std::vector<int> ranks;
  const bool due = state_ == State::running && attempt_.ready_by && *attempt_.ready_by <= now;
  for (std::size_t rank = 0; due && rank < attempt_.workers.size(); ++rank) {
    const auto& worker = attempt_.workers[rank];
    if (!worker.exit && !worker.member && !worker.ready) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void Supervisor::judge_readiness() {
  TellUnready told{overdue(now_)};
  attempt_.ready_by.reset();
  if (told.ranks.empty()) return;
  attempt_.no_progress = true;
  effects_.push_back(std::move(told));
  terminate(SIGTERM);
}

bool Supervisor::has_stragglers_due() const {
  if (!attempt_.first_success) return false;
  const auto since = now_ - *attempt_.first_success;
  const auto is_due = [&](Clock::duration limit) {
    return limit > Clock::duration::zero() && since >= limit;
  };
  return is_due(rules_.straggler_timeout) ||
         (!attempt_.told_stragglers && is_due(rules_.straggler_notice));
}

void Supervisor::judge_stragglers() {
  const auto since = now_ - *attempt_.first_success;
  TellStragglers told;
  told.since = since;
  told.over =
      rules_.straggler_timeout > Clock::duration::zero() && since >= rules_.straggler_timeout;
  for (std::size_t rank = 0; rank < attempt_.workers.size(); ++rank) {
    const auto& exit = attempt_.workers[rank].exit;
    if (!exit) told.running.push_back(static_cast<int>(rank));
    if (exit && exit->succeeded()) told.ended.push_back(static_cast<int>(rank));
  }
  attempt_.no_progress = told.over;
  attempt_.told_stragglers = true;
  effects_.push_back(std::move(told));
  attempt_.no_progress ? terminate(SIGTERM) : arm_running();
}

void Supervisor::begin_grace() {
  state_ = State::grace;
  attempt_.grace_began = now_;
  arm(rules_.failure_grace);
  judge_grace();
}

void Supervisor::judge_grace() {
  if (all_exited()) return kill();
  if (someone_will_report() || someone_has_grace()) return;
  if (!someone_is_exiting()) return someone_is_failing() ? await_failing() : end_grace();
  // A worker reports before it prints: SIGTERM now would cut off its sentence.
  if (attempt_.last_words) return;
  attempt_.last_words = true;
  if (deadline_after(rules_.last_words, now_) < *attempt_.deadline) arm(rules_.last_words);
}

/// Failing workers exit by themselves. SIGTERM now would hit the first to fail, whose end takes
/// longest.
void Supervisor::await_failing() {
  const auto until = deadline_after(rules_.traceback_grace, attempt_.grace_began);
  if (attempt_.deadline != until) arm(until - now_);
}

void Supervisor::end_grace() {
  attempt_.grace_ended = now_;
  terminate(SIGTERM);
}

void Supervisor::terminate(int signal_number) {
  state_ = State::terminating;
  effects_.push_back(SignalAll{signal_number});
  arm(rules_.shutdown_timeout);
}

void Supervisor::kill() {
  state_ = State::killing;
  effects_.push_back(KillAll{});
  arm(rules_.kill_timeout);
}

void Supervisor::conclude(bool unkillable) {
  attempt_.deadline.reset();
  state_ = State::idle;
  Ended end = verdict();
  end.unkillable = unkillable;
  effects_.push_back(end);
}

void Supervisor::arm(Clock::duration after) {
  attempt_.deadline = deadline_after(after, now_);
  // The next stage's timer replaces one that was armed for the grace.
  std::erase_if(effects_, [](const Effect& e) { return std::holds_alternative<ArmTimer>(e); });
  effects_.push_back(ArmTimer{*attempt_.deadline});
}

}  // namespace dlaunch::launcher
