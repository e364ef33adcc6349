#include "rendezvous/rounds_state.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

constexpr int node_lost_code = 79;

}  // namespace

void Rounds::State::on(const WorkerFailed& e) {
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  effects.push_back(RanksLost{epoch, e.rank, 1, node->offer.host, e.cause, e.session});
  if (rules.continue_on_failure || cause != EndCause::none) return;
  begin_end(EndCause::failure,
            "rank " + std::to_string(e.rank) + " on " + node->offer.host + " " + e.cause,
            e.session);
}

void Rounds::State::on(const WorkersEnded& e) {
  Node* node = member_of(e.session, e.epoch);
  if (!node) {
    // Whoever was given up may come back once its workers are gone.
    if (evicted.contains(e.session) && !find(e.session)) evict(e.session, e.epoch);
    return;
  }
  if (node->end || phase == Phase::finished) return;
  node->end = e;
  ends.push_back(e);
  --running;
  using Outcome = WorkersEnded::Outcome;
  const bool failed = e.outcome == Outcome::failed || e.outcome == Outcome::spawn_failed;
  const bool tolerated = rules.continue_on_failure && e.outcome == Outcome::failed;
  if (failed && !tolerated) {
    return begin_end(EndCause::failure, e.sentence + " (node " + node->offer.id + ")");
  }
  if (running == 0) judge();
}

/// Something happened that this epoch does not survive. The first counts as the cause; the members
/// are told to stop, and when all have ended it is judged.
void Rounds::State::begin_end(EndCause why, const std::string& reason, Session except) {
  if (cause == EndCause::none) {
    cause = why;
    cause_reason = reason;
    phase = Phase::stopping;
    stand(reason);
  }
  stop_members(why == EndCause::failure ? Stop::Cause::failure : Stop::Cause::membership, reason,
               except);
  if (running == 0) judge();
}

void Rounds::State::stop_members(Stop::Cause how, const std::string& reason, Session except) {
  for (auto& [session, node] : nodes) {
    if (session == except || !node.member() || node.end || node.order) continue;
    node.order = Stop{session, epoch, how, reason};
    effects.push_back(*node.order);
  }
}

void Rounds::State::judge() {
  using Outcome = WorkersEnded::Outcome;
  const auto unstartable = std::find_if(ends.begin(), ends.end(), [](const WorkersEnded& e) {
    return e.outcome == Outcome::spawn_failed;
  });
  if (unstartable != ends.end()) return finish(unstartable->exit_code, {}, unstartable->sentence);
  if (closes) return finish(leave_code, {}, cause_reason);
  switch (cause) {
    case EndCause::none:
      // With --on-failure continue somebody may have failed; if all have, so has the job.
      if (std::any_of(ends.begin(), ends.end(),
                      [](const auto& e) { return e.outcome == Outcome::succeeded; })) {
        return finish(0, {}, "all workers ended");
      }
      return judge_failure();
    case EndCause::failure:
      return judge_failure();
    case EndCause::loss:
      if (elastic()) return gather_or_give_up();
      if (attempt >= rules.max_restarts) return finish(node_lost_code, {}, cause_reason);
      ++attempt;
      return gather_or_give_up();
    case EndCause::arrival:
      return gather_or_give_up();
    case EndCause::leave:
      if (elastic() && alive() >= static_cast<std::size_t>(rules.nodes_min)) {
        return gather_or_give_up();
      }
      return finish(leave_code, {}, cause_reason);
  }
}

void Rounds::State::judge_failure() {
  using Outcome = WorkersEnded::Outcome;
  const WorkersEnded* root = nullptr;
  for (const auto& end : ends) {
    if (end.outcome != Outcome::failed) continue;
    if (!root || (root->consequence && !end.consequence)) root = &end;
  }
  // The node whose worker failed was lost before it could tell how.
  if (!root) {
    if (attempt >= rules.max_restarts) return finish(node_lost_code, {}, cause_reason);
  } else if (attempt >= rules.max_restarts) {
    return finish(root->exit_code, root->root_cause, root->sentence);
  }
  ++attempt;
  gather_or_give_up();
}

void Rounds::State::gather_or_give_up() {
  begin_gathering();
  consider_gathering();
}

void Rounds::State::finish(int exit_code, std::optional<int> root_cause, std::string sentence) {
  phase = Phase::finished;
  standing = sentence;
  verdict = Finish{exit_code, root_cause, std::move(sentence)};
  effects.push_back(*verdict);
}

}  // namespace dlaunch::rendezvous
