#include "rendezvous/rounds_state.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {

/// Who waits for a rank that is lost says so, and only then ends.
Stop::Cause manner_of(EndCause why) {
  const bool someone_is_missed = why == EndCause::failure || why == EndCause::loss;
  return someone_is_missed ? Stop::Cause::failure : Stop::Cause::membership;
}

void Rounds::State::on(const WorkerFailed& e) {
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->confirmed = true;
  const Admission& own = *node->admission;
  const bool its_own = e.rank >= own.first_rank && e.rank < own.first_rank + own.local_size;
  if (!its_own || !node->failed.insert(e.rank).second) return;
  tell_ranks_lost({{epoch, e.rank, 1, node->offer.host, e.cause, e.session}});
  if (rules.continue_on_failure || cause != EndCause::none) return;
  if (e.consequence && e.blamed) {
    // Who left is the cause, or a node whose connection here is broken as well.
    if (const auto early = early_exit(e.blamed)) {
      return begin_end(EndCause::failure, *early, e.session);
    }
    const Node* blamed = node_of_rank(*e.blamed);
    if (blamed && blamed->gone) return lose({{blamed->session, break_text(*blamed)}});
  }
  if (!e.consequence) {
    cause_session = e.session;
    cause_rank = e.rank;
  }
  begin_end(EndCause::failure,
            "rank " + std::to_string(e.rank) + " on " + node->offer.host + " " + e.cause,
            e.session);
}

/// Most often this is the usual end of a job, so not all of its ranks are told of: the first few to
/// leave are those that others may wait for.
void Rounds::State::on(const WorkerLeft& e) {
  constexpr std::size_t told_max = 16;
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->confirmed = true;
  const Admission& own = *node->admission;
  const bool its_own = e.rank >= own.first_rank && e.rank < own.first_rank + own.local_size;
  if (!its_own || !node->departed.insert(e.rank).second || exits_told++ >= told_max) return;
  RanksLost loss{epoch, e.rank, 1, node->offer.host, std::string(early_exit_cause), e.session};
  loss.left = true;
  repeated.push_back(loss);
  put(std::move(loss));
}

void Rounds::State::on(const WorkersEnded& e) {
  using Outcome = WorkersEnded::Outcome;
  if (!find(e.session)) {
    // Whoever was given up joins anew, now that its workers are gone.
    if (phase != Phase::finished) tell_evicted(e.session, e.epoch);
    return;
  }
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->end = e;
  node->confirmed = true;
  const bool unasked = e.outcome == Outcome::stopped && cause == EndCause::none;
  if (unasked && adopted.empty()) {
    node->end->outcome = Outcome::failed;
    if (e.sentence.empty()) node->end->sentence = "the workers were stopped from outside";
  }
  ends.push_back(*node->end);
  --running;
  if (unasked && !adopted.empty()) {
    const std::string text = "epoch " + std::to_string(epoch) +
                             " was being stopped when the rendezvous was started again";
    note_loss(text);
    return begin_end(EndCause::loss, text);
  }
  const auto outcome = node->end->outcome;
  const bool tolerated = rules.continue_on_failure && outcome == Outcome::failed;
  const bool failed = outcome == Outcome::failed || outcome == Outcome::spawn_failed;
  if (failed && !tolerated) {
    return begin_end(EndCause::failure, node->end->sentence + " (node " + node->offer.id + ")",
                     e.session);
  }
  judge_if_ended();
}

void Rounds::State::on(const CallsMade& e) {
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->confirmed = true;
  for (const auto& communicator : e.communicators) ledger.add(communicator);
}

/// Something happened that this epoch does not survive. The first counts as the cause; the members
/// are told to stop, and when all have ended it is judged.
void Rounds::State::begin_end(EndCause why, const std::string& reason, Session except) {
  if (cause == EndCause::none) {
    cause = why;
    cause_reason = reason;
    phase = Phase::stopping;
    stand(reason);
    for (auto& [session, node] : nodes) {
      if (session == except || !node.member() || node.end) continue;
      node.order = Stop{session, epoch, manner_of(why), reason};
      put(*node.order);
    }
  }
  judge_if_ended();
}

void Rounds::State::note_loss(const std::string& text) {
  if (lost_at) return;
  lost_at = now;
  loss_reason = text;
}

void Rounds::State::judge_if_ended() {
  if (running == 0 && awaited.empty()) judge();
}

void Rounds::State::judge() {
  using Outcome = WorkersEnded::Outcome;
  const auto unstartable = std::find_if(ends.begin(), ends.end(), [](const WorkersEnded& e) {
    return e.outcome == Outcome::spawn_failed;
  });
  if (unstartable != ends.end()) {
    return finish(unstartable->exit_code != 0 ? unstartable->exit_code : exit_code::failed, {},
                  unstartable->sentence);
  }
  if (const auto differ = unheard_disagreement()) {
    // A restart would make the same calls.
    return finish(exit_code::disagreement, {}, *differ);
  }
  switch (cause) {
    case EndCause::none: {
      // With --on-failure continue somebody may have failed; if all have, so has the job.
      const bool any = std::any_of(ends.begin(), ends.end(), [](const WorkersEnded& e) {
        return e.outcome == Outcome::succeeded;
      });
      return any ? finish(0, {}, "all workers ended") : finish_failed();
    }
    case EndCause::failure:
      return judge_failure();
    case EndCause::loss:
      return judge_loss();
    case EndCause::arrival:
      if (!closes) return gather_or_give_up();
      return finish(*leave_code, {}, cause_reason);
    case EndCause::leave:
      if (!closes && elastic() && count() >= rules.nodes_min) return gather_or_give_up();
      return finish(*leave_code, {}, cause_reason);
  }
}

/// Ranks went on, and ended, with wrong data, or waited for one that did.
std::optional<std::string> Rounds::State::unheard_disagreement() const {
  const WorkersEnded* root = root_cause();
  const bool nobody_failed = !root || root->consequence || early_exit(root->root_cause);
  if (cause != EndCause::none && cause != EndCause::failure) return std::nullopt;
  return nobody_failed && !lost_at && !culprit_lost ? ledger.disagreement() : std::nullopt;
}

/// The first failure that blames nobody else, as it was told; or the first.
const WorkersEnded* Rounds::State::root_cause() const {
  const WorkersEnded* root = nullptr;
  for (const auto& end : ends) {
    if (end.outcome != WorkersEnded::Outcome::failed) continue;
    if (!end.consequence && end.session == cause_session) return &end;
    if (!root || (root->consequence && !end.consequence)) root = &end;
  }
  return root;
}

const Node* Rounds::State::node_of_rank(int rank) const {
  for (const auto& [session, node] : nodes) {
    if (!node.member()) continue;
    const Admission& own = *node.admission;
    if (rank >= own.first_rank && rank < own.first_rank + own.local_size) return &node;
  }
  return nullptr;
}

std::optional<std::string> Rounds::State::early_exit(std::optional<int> rank) const {
  const Node* node = rank ? node_of_rank(*rank) : nullptr;
  if (!node) return std::nullopt;
  const bool all = node->end && node->end->outcome == WorkersEnded::Outcome::succeeded;
  if (!all && !node->departed.contains(*rank)) return std::nullopt;
  return "rank " + std::to_string(*rank) + " on " + node->offer.host +
         " exited with 0 before the others";
}

void Rounds::State::judge_failure() {
  const WorkersEnded* root = root_cause();
  const bool all_blame_others = !root || root->consequence;
  // The workers notice that a node is gone before its lease ends.
  if (all_blame_others && lost_at && !culprit_lost) return judge_loss();
  if (attempt >= rules.max_restarts || leave_code || closes) return finish_failed();
  ++attempt;
  gather_or_give_up();
}

void Rounds::State::judge_loss() {
  const bool may_go_on = !closes && (elastic() || (attempt < rules.max_restarts && !leave_code));
  if (!may_go_on) return finish(exit_code::node_lost, {}, loss_reason);
  if (!elastic()) ++attempt;
  gather_or_give_up();
}

void Rounds::State::finish_failed() {
  const WorkersEnded* root = root_cause();
  const bool lost_before_it_told = culprit_lost && (!root || root->consequence);
  if (!root || lost_before_it_told) {
    return finish(exit_code::node_lost, {},
                  lost_at ? cause_reason + "; then " + loss_reason : cause_reason);
  }
  const int code = root->exit_code != 0 ? root->exit_code : exit_code::failed;
  // Who left early did not fail; those who waited for it did.
  const auto early = root->consequence ? early_exit(root->blamed) : std::nullopt;
  if (early) return finish(code, root->blamed, *early);
  // In the words in which all nodes have heard of it.
  const bool was_told = root->session == cause_session && root->root_cause == cause_rank;
  finish(code, root->root_cause, was_told ? cause_reason : root->sentence);
}

void Rounds::State::gather_or_give_up() {
  begin_gathering();
  consider_gathering();
}

void Rounds::State::finish(int exit_code, std::optional<int> root_cause, std::string sentence) {
  phase = Phase::finished;
  standing = sentence;
  verdict = Finish{exit_code, root_cause, std::move(sentence)};
  put(*verdict);
}

}  // namespace dlaunch::rendezvous
