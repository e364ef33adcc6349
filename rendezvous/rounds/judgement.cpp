#include "rendezvous/rounds/judgement.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

using Outcome = WorkersEnded::Outcome;

/// The first end of the epoch's nodes with this outcome.
const WorkersEnded* first_end(const Epoch& epoch, Outcome outcome) {
  const auto found = std::find_if(epoch.ends().begin(), epoch.ends().end(),
                                  [&](const WorkersEnded& e) { return e.outcome == outcome; });
  return found == epoch.ends().end() ? nullptr : &*found;
}

Finish ended_with(const WorkersEnded& e) {
  return {e.exit_code != 0 ? e.exit_code : exit_code::failed, std::nullopt, e.sentence};
}

Finish failed(const Epoch& epoch) {
  if (auto verdict = epoch.find_cause()) {
    const int code = verdict->exit_code;
    std::string text = epoch.text_of(*verdict);
    return {code, std::move(verdict), std::move(text)};
  }
  if (const auto* end = first_end(epoch, Outcome::failed)) return ended_with(*end);
  const auto& loss = epoch.legacy().first_loss;
  const std::string why = epoch.ending() ? epoch.ending()->reason : "";
  return Finish::for_lost_node(loss ? why + "; then " + loss->reason : why);
}

/// Workers notice that a node is gone before its lease ends, and may say so or not. So a failure
/// counts as a consequence of the loss if it blames others, or was reported after the lost node had
/// fallen silent. The same holds for a node that leaves.
EndCause cause_at_end(const Epoch& epoch) {
  const Epoch::Ending& ending = *epoch.ending();
  if (ending.cause != EndCause::failure) return ending.cause;
  const auto verdict = epoch.find_cause();
  const bool open =
      !verdict || epoch.is_open(*verdict) || verdict->kind == Verdict::Kind::node_lost;
  if (epoch.legacy().first_loss && (open || ending.lost_before)) return EndCause::loss;
  if (epoch.left() && open) return EndCause::leave;
  return EndCause::failure;
}

/// A disagreement that no rank has noticed: ranks went on with wrong data and ended, or waited for
/// one that did.
std::optional<std::string> unheard_disagreement(const Epoch& epoch) {
  if (epoch.ending() && epoch.ending()->cause != EndCause::failure) return std::nullopt;
  const auto verdict = epoch.find_cause();
  const bool nobody_failed = !verdict || verdict->nobody_failed();
  return nobody_failed && !epoch.legacy().first_loss ? epoch.disagreement() : std::nullopt;
}

}  // namespace

bool RestartBudget::has_one(const JobRules& rules, int made, Clock::time_point now) const {
  if (rules.restart_window <= Clock::duration::zero()) return made < rules.max_restarts;
  const auto counts = std::count_if(spent_.begin(), spent_.end(), [&](Clock::time_point when) {
    return now - when < rules.restart_window;
  });
  return counts < rules.max_restarts;
}

bool RestartBudget::may_have_one(const JobRules& rules, int made) {
  const bool recovers = rules.restart_window > Clock::duration::zero();
  return recovers ? rules.max_restarts > 0 : made < rules.max_restarts;
}

std::optional<RestartPause> RestartBudget::spend(const JobRules& rules, Clock::time_point began,
                                                 Clock::time_point failed, Clock::time_point now) {
  if (rules.restart_window > Clock::duration::zero()) {
    std::erase_if(spent_, [&](auto when) { return now - when >= rules.restart_window; });
    spent_.push_back(now);
  }
  const RestartBackoff& backoff = rules.restart_backoff;
  if (failed - began >= backoff.longest) {
    quick_failures_ = 0;
    return std::nullopt;
  }
  if (quick_failures_++ == 0) quick_since_ = began;
  if (quick_failures_ == 1 || backoff.first <= Clock::duration::zero()) return std::nullopt;
  auto length = std::min(backoff.first, backoff.longest);
  for (int i = 2; i < quick_failures_ && length < backoff.longest; ++i) {
    length = length > backoff.longest / 2 ? backoff.longest : length * 2;
  }
  return RestartPause{deadline_after(length, now),
                      "it restarts in " + seconds_text(length) + ": " +
                          std::to_string(quick_failures_) + " failures within " +
                          rest_text(std::max<Clock::duration>(failed - quick_since_, 1s))};
}

Judgement judge(const Epoch& epoch, const JobRules& rules, bool has_restart, int nodes_here) {
  if (const auto* end = first_end(epoch, Outcome::spawn_failed)) return ended_with(*end);
  if (auto differ = unheard_disagreement(epoch)) {
    // A restart would make the same calls.
    return Finish{exit_code::disagreement, std::nullopt, std::move(*differ), std::nullopt,
                  Finish::Cause::disagreement};
  }
  if (!epoch.ending()) {
    // With --on-failure continue some may have failed; the job has failed if all have.
    if (!first_end(epoch, Outcome::succeeded)) return failed(epoch);
    return Finish{0, std::nullopt, "all workers ended"};
  }
  // A node that left on purpose is not waited for: enough others are here, or the job ends.
  const bool lacks_who_left = epoch.left() && !rules.goes_on_with(nodes_here);
  const bool began_as_failure = epoch.ending()->cause == EndCause::failure;
  switch (cause_at_end(epoch)) {
    case EndCause::failure: {
      if (!has_restart || lacks_who_left) return failed(epoch);
      const auto verdict = epoch.find_cause();
      return GoesOn{verdict ? epoch.text_of(*verdict) : epoch.ending()->reason, true};
    }
    case EndCause::loss: {
      const std::string& why = epoch.legacy().first_loss->reason;
      if (rules.elastic() || rules.goes_on_with(nodes_here)) {
        return GoesOn{why, false, began_as_failure};
      }
      if (has_restart && !epoch.left()) return GoesOn{why, true, began_as_failure};
      return Finish::for_lost_node(why);
    }
    // Nodes have come or gone without a failure, which costs no restart.
    case EndCause::arrival:
    case EndCause::leave:
      break;
  }
  if (lacks_who_left) return Finish{epoch.left()->exit_code, std::nullopt, epoch.left()->reason};
  return GoesOn{began_as_failure ? epoch.left()->reason : epoch.ending()->reason, false,
                began_as_failure};
}

Finish judge_at_once(const Epoch& epoch, int exit_code, const std::string& reason) {
  const auto verdict = epoch.find_cause();
  const bool has_failed = epoch.ending() && epoch.ending()->cause == EndCause::failure;
  if (has_failed && verdict && !epoch.is_open(*verdict)) return failed(epoch);
  return {exit_code, std::nullopt, reason};
}

}  // namespace dlaunch::rendezvous
