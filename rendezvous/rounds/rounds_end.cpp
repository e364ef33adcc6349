#include "rendezvous/rounds/rounds_state.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace dlaunch::rendezvous {

/// A rank that waits for a lost one says so, and only then ends.
Stop::Cause manner_of(EndCause why) {
  const bool someone_is_missed = why == EndCause::failure || why == EndCause::loss;
  return someone_is_missed ? Stop::Cause::failure : Stop::Cause::membership;
}

bool Rounds::State::is_own(const Node& node, int rank) const {
  const Admission& own = *node.admission;
  return rank >= own.first_rank && rank < own.first_rank + own.local_size;
}

bool Rounds::State::is_first_news(const Node& node, int rank) {
  return is_own(node, rank) && evidence.told.insert(rank).second;
}

void Rounds::State::on(const WorkerFailed& e) {
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->confirmed = true;
  const int rank = e.fact.rank;
  if (!is_first_news(*node, rank)) return;
  evidence.facts.ranks.insert_or_assign(rank, e.fact);
  evidence.hosts[rank] = node->offer.host;
  tell_ranks_lost({{epoch, rank, 1, node->offer.host, e.cause, e.session}});
  if (rules.continue_on_failure || cause != EndCause::none) return;
  const auto verdict = find_cause();
  if (verdict && !is_open(*verdict)) {
    return begin_end(EndCause::failure, text_of(*verdict), e.session);
  }
  // It may be a node whose connection here is broken as well.
  if (e.fact.claim && e.fact.claim->fault == Fault::lost && !e.fact.claim->ranks.empty()) {
    const Node* blamed = node_of_rank(e.fact.claim->ranks.front());
    if (blamed && blamed->gone) return lose({{blamed->session, break_text(*blamed)}});
  }
  begin_end(EndCause::failure, name_of_rank(rank) + " " + e.cause, e.session);
}

/// Most often this is the usual end of a job, so not all of its ranks are told of: the first few to
/// leave are those that others may wait for.
void Rounds::State::on(const WorkerLeft& e) {
  constexpr std::size_t told_max = 16;
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->confirmed = true;
  if (!is_first_news(*node, e.rank)) return;
  evidence.facts.add_left(e.rank);
  if (exits_told++ >= told_max) return;
  RanksLost gone{epoch, e.rank, 1, node->offer.host, left_text, e.session};
  gone.left = true;
  repeated.push_back(gone);
  put(std::move(gone));
}

/// The facts that a node gives when all its workers have ended count: later claims may have come.
void Rounds::State::take_facts(const Node& node, const WorkersEnded& e) {
  for (const auto& [rank, fact] : e.facts.ranks) {
    if (is_own(node, rank)) evidence.facts.ranks.insert_or_assign(rank, fact);
  }
  for (const auto& [first, count] : e.facts.left) {
    if (is_own(node, first) && count > 0 && is_own(node, first + count - 1)) {
      evidence.facts.add_left(first, count);
    }
  }
  if (e.outcome == WorkersEnded::Outcome::succeeded) {
    evidence.facts.add_left(node.admission->first_rank, node.admission->local_size);
  }
  constexpr std::size_t kept_max = 256;
  for (const auto& details : e.details) {
    if (is_own(node, details.rank) && evidence.details.size() < kept_max) {
      evidence.details.emplace(details.rank, details).first->second.node = node.offer.id;
    }
  }
}

void Rounds::State::on(const WorkersEnded& e) {
  using Outcome = WorkersEnded::Outcome;
  if (!find(e.session)) {
    // A node that was given up joins anew, now that its workers are gone.
    if (phase != Phase::finished) tell_evicted(e.session, e.epoch);
    return;
  }
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->end = e;
  node->confirmed = true;
  take_facts(*node, e);
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
    if (cause != EndCause::none) return judge_if_ended();  // Judging takes as long as many failed.
    const auto verdict = find_cause();
    const std::string why = verdict && node->end->sentence.empty()
                                ? text_of(*verdict)
                                : node->end->sentence + " (node " + node->offer.id + ")";
    return begin_end(EndCause::failure, why, e.session);
  }
  judge_if_ended();
}

void Rounds::State::on(const CallsMade& e) {
  Node* node = member_of(e.session, e.epoch);
  if (!node || node->end || phase == Phase::finished) return;
  node->confirmed = true;
  for (const auto& communicator : e.communicators) ledger.add(communicator);
}

/// If ranks disagree on a call, those that have returned from it and ended count, too.
std::optional<Verdict> Rounds::State::find_cause() const {
  std::set<std::pair<std::uint64_t, std::uint64_t>> disputed;
  for (const auto& [rank, fact] : evidence.facts.ranks) {
    if (!fact.claim || fact.claim->votes.empty()) continue;
    disputed.emplace(fact.claim->communicator, fact.claim->sequence);
  }
  std::vector<Count> counts;
  for (const auto& [communicator, sequence] : disputed) {
    for (const Count& count : ledger.counts(communicator, sequence)) counts.push_back(count);
  }
  if (counts.empty()) return dlaunch::judge(evidence.facts);
  Facts facts = evidence.facts;
  facts.counts = std::move(counts);
  return dlaunch::judge(facts);
}

/// Something happened that this epoch does not survive. The first counts as the cause; the members
/// are told to stop, and when all have ended it is judged.
void Rounds::State::begin_end(EndCause why, const std::string& reason, Session except) {
  if (cause == EndCause::none) {
    cause = why;
    cause_reason = reason;
    caused_at = now;
    caused_by = except;
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
  if (!first_loss) first_loss = Loss{now, text};
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
    return finish(unstartable->exit_code != 0 ? unstartable->exit_code : exit_code::failed,
                  unstartable->sentence);
  }
  if (const auto differ = unheard_disagreement()) {
    // A restart would make the same calls.
    return finish(exit_code::disagreement, *differ);
  }
  switch (cause_at_end()) {
    case EndCause::none: {
      // With --on-failure continue somebody may have failed; if all have, so has the job.
      const bool any = std::any_of(ends.begin(), ends.end(), [](const WorkersEnded& e) {
        return e.outcome == Outcome::succeeded;
      });
      return any ? finish(0, "all workers ended") : finish_failed();
    }
    case EndCause::failure:
      return judge_failure();
    case EndCause::loss:
      return judge_loss();
    case EndCause::arrival:
    case EndCause::leave:
      return judge_leave();
  }
}

/// The workers notice that a node is gone before its lease ends, and say so or not: a failure that
/// blames others, or that was told when the lost node had fallen silent, is what came of the loss.
/// So it is with a node that leaves.
EndCause Rounds::State::cause_at_end() const {
  if (cause != EndCause::failure) return cause;
  const auto verdict = find_cause();
  const bool open = !verdict || is_open(*verdict) || verdict->kind == Verdict::Kind::node_lost;
  if (first_loss && (open || lost_before)) return EndCause::loss;
  if (left && open) return EndCause::leave;
  return EndCause::failure;
}

/// Ranks went on, and ended, with wrong data, or waited for one that did.
std::optional<std::string> Rounds::State::unheard_disagreement() const {
  if (cause != EndCause::none && cause != EndCause::failure) return std::nullopt;
  const auto verdict = find_cause();
  const bool nobody_failed =
      !verdict || verdict->kind == Verdict::Kind::left || verdict->kind == Verdict::Kind::lost;
  return nobody_failed && !first_loss ? ledger.disagreement() : std::nullopt;
}

const Node* Rounds::State::node_of_rank(int rank) const {
  for (const auto& [session, node] : nodes) {
    if (!node.member()) continue;
    const Admission& own = *node.admission;
    if (rank >= own.first_rank && rank < own.first_rank + own.local_size) return &node;
  }
  return nullptr;
}

std::string Rounds::State::name_of_rank(int rank) const {
  const std::string which = "rank " + std::to_string(rank);
  if (const Node* node = node_of_rank(rank)) return which + " on " + node->offer.host;
  const auto known = evidence.hosts.find(rank);
  return known == evidence.hosts.end() ? which : which + " on " + known->second;
}

std::string Rounds::State::text_of(const Verdict& verdict) const {
  return sentence_of(verdict, [this](int rank) { return name_of_rank(rank); });
}

bool Rounds::State::is_open(const Verdict& verdict) const {
  if (verdict.kind == Verdict::Kind::lost) return true;
  if (verdict.kind != Verdict::Kind::failed) return false;
  const auto fact = evidence.facts.ranks.find(verdict.rank());
  const bool blames = fact != evidence.facts.ranks.end() && fact->second.claim;
  return blames && fact->second.claim->fault == Fault::lost;
}

void Rounds::State::judge_failure() {
  if (attempt >= rules.max_restarts || lacks_who_left()) return finish_failed();
  ++attempt;
  const auto verdict = find_cause();
  gather_or_give_up(verdict ? text_of(*verdict) : cause_reason);
}

void Rounds::State::judge_loss() {
  const bool may_go_on = elastic() || (attempt < rules.max_restarts && !left);
  if (!may_go_on) return finish(exit_code::node_lost, first_loss->reason);
  if (!elastic()) ++attempt;
  if (cause == EndCause::failure) stand(first_loss->reason);  // Only now it is known for what.
  gather_or_give_up(first_loss->reason);
}

/// Nodes have come or gone, and nothing has failed: that costs no restart.
void Rounds::State::judge_leave() {
  if (lacks_who_left()) return finish(left->exit_code, left->reason);
  if (cause != EndCause::failure) return gather_or_give_up(cause_reason);
  stand(left->reason);
  gather_or_give_up(left->reason);
}

/// Nobody is left who could wait for the others' ends, or tell them of it.
void Rounds::State::finish_without_host(int exit_code, const std::string& reason) {
  const auto verdict = find_cause();
  if (cause == EndCause::failure && verdict && !is_open(*verdict)) return finish_failed();
  finish(exit_code, reason);
}

void Rounds::State::finish_failed() {
  using Outcome = WorkersEnded::Outcome;
  if (auto verdict = find_cause()) {
    const int code = verdict->exit_code;
    std::string text = text_of(*verdict);
    return finish(code, std::move(text), std::move(verdict));
  }
  const auto failed = std::find_if(
      ends.begin(), ends.end(), [](const WorkersEnded& e) { return e.outcome == Outcome::failed; });
  if (failed == ends.end()) {
    return finish(exit_code::node_lost,
                  first_loss ? cause_reason + "; then " + first_loss->reason : cause_reason);
  }
  finish(failed->exit_code != 0 ? failed->exit_code : exit_code::failed, failed->sentence);
}

void Rounds::State::gather_or_give_up(std::string why) {
  again_for = std::move(why);
  begin_gathering();
  consider_gathering();
}

void Rounds::State::finish(int exit_code, std::string sentence, std::optional<Verdict> why) {
  phase = Phase::finished;
  standing = sentence;
  Finish end{exit_code, std::move(why), std::move(sentence)};
  if (end.verdict) {
    const auto known = evidence.details.find(end.verdict->rank());
    if (known != evidence.details.end()) end.details = known->second;
  }
  finish_said = end;
  put(std::move(end));
}

}  // namespace dlaunch::rendezvous
