#include "rendezvous/service/actions.hpp"

#include "rendezvous/service/service_state.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>

/// The operators' actions. Each takes one turn of the loop and is over when it returns; nodes hear
/// of it as of any other event.
namespace dlaunch::rendezvous {
namespace {

using Kind = Action::Kind;
using Result = ActionOutcome::Result;

/// "stopped by operator 'ada': the cluster is moved".
std::string order_text(std::string_view what, const Action& action) {
  std::string text = std::string(what) + " by operator " + in_quotes(action.by);
  if (!action.reason.empty()) text += ": " + action.reason;
  return text;
}

ActionOutcome over(const Job& job) {
  return {Result::not_now,
          "the job has ended with exit code " + std::to_string(job.finished->exit_code)};
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::stop:
      return "stop";
    case Kind::drain:
      return "drain";
    case Kind::remove:
      return "remove";
    case Kind::evict:
      return "evict";
    case Kind::drain_all:
      return "drain-all";
    case Kind::resume_all:
      return "resume-all";
    case Kind::backup:
      return "backup";
  }
  return "?";
}

ActionOutcome Service::State::act(const Action& action) {
  const bool of_all = action.kind == Kind::drain_all || action.kind == Kind::resume_all ||
                      action.kind == Kind::backup;
  LogLine line{.level = LogLine::Level::warning,
               .job = action.job,
               .sentence = {},
               .event = LogLine::Event::action};
  Job* job = of_all ? nullptr : find(action.job);
  if (job != nullptr) {
    line.epoch = job->epoch;
    line.attempt = job->attempt;
  }
  auto outcome = action.kind == Kind::backup ? back_up(action)
                 : of_all                    ? drain_all(action)
                 : job == nullptr            ? ActionOutcome{Result::no_job, "there is no such job"}
                                             : act_on(*job, action);
  const bool done = outcome.result == Result::done;
  ++(done ? totals.actions_done : totals.actions_refused);
  line.sentence = "action " + std::string(name_of(action.kind)) +
                  (action.node.empty() ? "" : " of node " + action.node) +
                  (action.backup.empty() ? "" : " " + in_quotes(action.backup)) +
                  order_text("", action) + " (from " + action.from +
                  "): " + (done ? "done: " : "refused: ") + outcome.sentence;
  if (log) log(line);
  arm();
  if (auto* const commits = journal == nullptr ? nullptr : journal->commits()) {
    // The job may have no node left that could be told.
    commits->seal();
    outcome.outlives = [keep = journal,
                        recorded = commits->recorded()](Clock::time_point deadline) {
      return keep->await_durable(recorded, deadline);
    };
  }
  return outcome;
}

/// A backup takes longer than a turn; the journal tells how it goes.
ActionOutcome Service::State::back_up(const Action& action) {
  if (journal == nullptr) return {Result::not_now, "nothing is kept here that could be saved"};
  const std::string why = journal->back_up(action.backup);
  if (!why.empty()) return {Result::not_now, why};
  return {Result::done, "the backup " + in_quotes(action.backup) + " is under way"};
}

ActionOutcome Service::State::drain_all(const Action& action) {
  if (action.kind == Kind::drain_all) {
    // This holds while the daemon is being stopped, too: the next daemon begins drained.
    if (journal != nullptr) journal->drained({}, order_text("drained", action));
    if (std::exchange(draining, true)) return {Result::done, "it takes no new jobs already"};
    return {Result::done, "no new job is taken until it is resumed; " +
                              plural(static_cast<long>(unfinished()), "job") + " may end"};
  }
  if (when_idle || farewell) return {Result::not_now, "dlaunchd is being stopped"};
  if (journal != nullptr) journal->drained({}, std::nullopt);
  if (!std::exchange(draining, false)) return {Result::done, "it takes new jobs already"};
  return {Result::done, "new jobs are taken again"};
}

ActionOutcome Service::State::act_on(Job& job, const Action& action) {
  if (action.kind == Kind::evict) return evict(job, action);
  if (job.finished && action.kind != Kind::remove) return over(job);
  const auto now = Clock::now();
  if (action.kind == Kind::drain) {
    const auto status = job.rounds.status();
    if (status.draining) return {Result::done, "it is being drained already"};
    if (status.state != JobStatus::State::running) {
      return {Result::not_now,
              "none of its epochs runs now, so there is none that could go on to its end; try it "
              "again when one does, or stop the job"};
    }
    const std::string why = order_text("being drained", action);
    if (journal != nullptr) journal->drained(job.name, why);
    step(job, DrainJob{why}, now);
    return {Result::done,
            "no node is let in, and no epoch begins after epoch " + std::to_string(job.epoch)};
  }
  const bool removes = action.kind == Kind::remove;
  const bool was_over = job.finished.has_value();
  if (!was_over) {
    step(job, StopJob{stopped_by_operator, order_text(removes ? "removed" : "stopped", action)},
         now);
  }
  const std::string code =
      std::to_string(job.finished ? job.finished->exit_code : stopped_by_operator);
  if (!removes) return {Result::done, "the job ends with exit code " + code};
  forget(job);
  return {Result::done,
          (was_over ? "the job had ended with exit code " : "the job ends with exit code ") + code +
              ", and nothing is kept of it"};
}

ActionOutcome Service::State::evict(Job& job, const Action& action) {
  if (job.finished) return over(job);
  const auto member = std::ranges::find_if(job.members, [&](const auto& entry) {
    return entry.second.node == action.node && job.rounds.knows(entry.first);
  });
  if (member == job.members.end()) {
    return {Result::no_node, "the job has no node " + in_quotes(action.node) + " now"};
  }
  const Session session = member->first;
  const std::string order = order_text("evicted", action);
  job.evicted = "node " + in_quotes(action.node) + " was " + order;
  step(job, EvictNode{session, order}, Clock::now());
  carry_out(job);
  if (job.finished) {
    return {Result::done, "the job cannot go on without it, and ends with exit code " +
                              std::to_string(job.finished->exit_code)};
  }
  const bool was_last = std::ranges::none_of(
      job.members, [&](const auto& entry) { return job.rounds.knows(entry.first); });
  if (!was_last) return {Result::done, "it counts as lost"};
  std::string waits = "it counts as lost; no node is left, and the job waits for others";
  if (const auto until = job.rounds.next_deadline()) {
    waits += ", for " + duration_text(std::max(*until - Clock::now(), Clock::duration::zero())) +
             " at most; \"dlaunch ctl stop\" ends it now";
  }
  return {Result::done, std::move(waits)};
}

ActionOutcome Service::act(const Action& action) { return state_->act(action); }

bool Service::draining() const { return state_->draining; }

const std::optional<std::string>& Service::drained_before() const { return state_->drained_before; }

}  // namespace dlaunch::rendezvous
