// A supervisor's facts about its workers, and the conclusions from them.
#include "launcher/job/core/supervisor.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {
namespace {

/// Our signal met a worker that had already been failing by itself: it counts as failed, with its
/// own code if it came to give one.
void take_as_failed(Fact& fact, const ExitStatus& status, Clock::time_point since) {
  const bool has_code = status.signal == 0 && status.code != 0;
  fact.end = Fact::End::failed;
  fact.exit_code = has_code ? status.code : exit_code::failed;
  fact.signal = 0;
  fact.core_dumped = false;
  fact.when = since;
}

}  // namespace

bool Supervisor::all_exited() const {
  return std::all_of(attempt_.workers.begin(), attempt_.workers.end(),
                     [](const auto& worker) { return worker.exit.has_value(); });
}

bool Supervisor::someone_failed() const {
  return std::any_of(attempt_.workers.begin(), attempt_.workers.end(),
                     [](const auto& worker) { return worker.failed(); });
}

/// Whether the attempt has its outcome, whatever comes now. A failure that blames another node's
/// rank is no outcome: it may be the first that this node sees of a job that is stopped everywhere.
/// Nor is a failure after an order to stop, whose reason came first.
bool Supervisor::is_settled() const {
  if (attempt_.no_progress) return true;
  if (const auto cause = judge(facts())) {
    const bool ordered = attempt_.order && *attempt_.order != StopOrder::Manner::report_first;
    return !ordered && !(rules_.peers_elsewhere && blames_elsewhere(*cause));
  }
  return state_ != State::idle &&
         std::all_of(attempt_.workers.begin(), attempt_.workers.end(),
                     [](const auto& w) { return w.exit && !w.stopped_by_us; });
}

/// Whether the rank to blame is another node's, or one here that lost a rank it cannot name.
bool Supervisor::blames_elsewhere(const Verdict& cause) const {
  const int place = cause.rank() - attempt_.first_rank;
  if (place < 0 || place >= rules_.workers) return true;
  return lost_somebody(cause, attempt_.workers[static_cast<std::size_t>(place)].claim);
}

/// The lost rank's end may be under way without any sign of it.
bool Supervisor::someone_has_grace() const {
  return rules_.failure_grace_given &&
         std::any_of(attempt_.workers.begin(), attempt_.workers.end(),
                     [](const auto& worker) { return !worker.member && !worker.exit; });
}

bool Supervisor::someone_will_report() const {
  return std::any_of(attempt_.workers.begin(), attempt_.workers.end(), [](const auto& worker) {
    return worker.member && !worker.exit && !worker.claim;
  });
}

bool Supervisor::someone_is_exiting() const {
  return std::any_of(attempt_.workers.begin(), attempt_.workers.end(), [](const auto& worker) {
    return worker.member && !worker.exit && worker.claim;
  });
}

bool Supervisor::someone_is_failing() const {
  return std::any_of(attempt_.workers.begin(), attempt_.workers.end(), [this](const auto& worker) {
    return !worker.exit && failing_since(worker).has_value();
  });
}

/// Since when a worker has been failing: the first of its last tracebacks counts, as one exception
/// often follows another. A member reports its failures itself.
std::optional<Clock::time_point> Supervisor::failing_since(const WorkerRecord& worker) const {
  if (worker.member) return std::nullopt;
  auto until = worker.exit ? worker.ended : now_;
  if (attempt_.grace_ended) until = std::min(until, *attempt_.grace_ended);
  for (const auto at : worker.tracebacks) {
    if (until - at <= traceback_holds_for) return at;
  }
  return std::nullopt;
}

std::optional<Clock::time_point> Supervisor::first_failure() const {
  std::optional<Clock::time_point> first;
  for (const auto& worker : attempt_.workers) {
    if (!worker.failed()) continue;
    const auto at = worker.gave_up ? worker.gave_up->at : worker.ended;
    if (!first || at < *first) first = at;
  }
  return first;
}

Fact Supervisor::fact_of(std::size_t rank) const {
  const WorkerRecord& worker = attempt_.workers[rank];
  Fact fact;
  fact.rank = attempt_.first_rank + static_cast<int>(rank);
  fact.when = worker.ended;
  if (worker.exit) {
    fact.exit_code = worker.exit->code;
    fact.signal = worker.exit->signal;
    fact.core_dumped = worker.exit->core_dumped;
    const auto failing = worker.exit->succeeded() ? std::nullopt : failing_since(worker);
    if (!worker.stopped_by_us) {
      fact.end = worker.exit->succeeded() ? Fact::End::left : Fact::End::failed;
      fact.when = failing.value_or(worker.ended);
    } else if (failing && attempt_.grace_ended) {
      take_as_failed(fact, *worker.exit, *failing);
    }
  }
  // A worker has failed when it writes an error file, however long it then takes to end; others
  // that fail because of it may end before. A worker that was told to end, and wrote about that,
  // has not failed.
  if (const auto wrote = worker.wrote_error_file; wrote && worker.exit) {
    const auto first = first_failure();
    const bool was_first = first && *wrote <= *first;
    if (fact.failed()) {
      fact.when = *wrote;
    } else if (!worker.stopped_by_us || was_first) {
      take_as_failed(fact, *worker.exit, *wrote);
    }
  }
  // The worker has said what the job ends with, however its process ends then.
  if (worker.gave_up && worker.exit) {
    fact.end = Fact::End::failed;
    fact.exit_code = worker.gave_up->exit_code;
    fact.signal = 0;
    fact.core_dumped = false;
    fact.when = worker.gave_up->at;
  }
  const auto until = worker.exit ? worker.ended : now_;
  if (worker.claim && until - worker.claimed <= claim_holds_for) fact.claim = worker.claim;
  return fact;
}

Facts Supervisor::facts() const {
  Facts facts;
  for (std::size_t rank = 0; rank < attempt_.workers.size(); ++rank) {
    Fact fact = fact_of(rank);
    if (fact.end == Fact::End::left) {
      facts.add_left(fact.rank);
    } else if (fact.failed() || fact.claim) {
      facts.ranks.emplace(fact.rank, std::move(fact));
    }
  }
  return facts;
}

Ended Supervisor::verdict() const {
  constexpr int front_lost_code = 70;
  if (front_lost_) return {Outcome::front_lost, front_lost_code};
  if (attempt_.spawn_failure_code) return {Outcome::spawn_failed, *attempt_.spawn_failure_code};
  if (expired_ && !settled_before_stop_) return {Outcome::stopped, exit_code::preempted};
  if (stop_signal_ && !settled_before_stop_) {
    return {Outcome::stopped, 128 + *stop_signal_};
  }
  if (attempt_.no_progress) return {Outcome::failed, exit_code::no_progress};
  auto cause = judge(facts());
  if (!cause) {
    const bool cut_short =
        attempt_.order && std::any_of(attempt_.workers.begin(), attempt_.workers.end(),
                                      [](const auto& w) { return w.stopped_by_us; });
    return {cut_short ? Outcome::stopped : Outcome::succeeded, 0};
  }
  const bool someone_succeeded =
      std::any_of(attempt_.workers.begin(), attempt_.workers.end(),
                  [](const auto& w) { return w.exit && w.exit->succeeded() && !w.stopped_by_us; });
  // A program that shrinks is done when its survivors are.
  if (rules_.continue_on_failure && someone_succeeded) {
    return {Outcome::succeeded, 0, std::move(cause)};
  }
  const int code = cause->exit_code;
  return {Outcome::failed, code, std::move(cause)};
}

}  // namespace dlaunch::launcher
