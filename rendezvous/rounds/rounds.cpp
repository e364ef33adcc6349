#include "rendezvous/rounds/rounds.hpp"

#include "rendezvous/rounds/rounds_state.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// Lost nodes that are to be told so when they speak again; beyond that they hear it when they
/// join again or report.
constexpr std::size_t lost_max = 65'536;

/// A node left: others that are about to do so as well say it within this.
constexpr Clock::duration others_leave_within = std::chrono::seconds(1);

/// A tick that is later than this need not be a busy machine's.
constexpr Clock::duration late_at_least = std::chrono::milliseconds(100);

/// "5.0 s".
std::string silence_text(Clock::duration silence) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Rounds::Rounds(std::uint64_t last_epoch, Incarnation incarnation, std::string name)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->use = incarnation;
  state_->incarnation = incarnation.number;
  state_->last_epoch = state_->epoch = state_->epoch_seen = last_epoch;
}
Rounds::~Rounds() = default;
Rounds::Rounds(Rounds&&) noexcept = default;
Rounds& Rounds::operator=(Rounds&&) noexcept = default;

Effects Rounds::step(const Event& event, Clock::time_point now) {
  State& s = *state_;
  const auto before = std::exchange(s.now, std::max(s.now, now));
  s.effects.clear();
  s.forgive_own_stall(before);
  std::visit([&s](const auto& e) { s.on(e); }, event);
  s.asked = next_deadline();
  return std::exchange(s.effects, {});
}

std::optional<Clock::time_point> Rounds::next_deadline() const {
  const State& s = *state_;
  if (s.phase == State::Phase::finished) return std::nullopt;
  std::optional<Clock::time_point> next;
  const auto consider = [&](const std::optional<Clock::time_point>& when) {
    if (when && *when != Clock::time_point::max() && (!next || *when < *next)) next = when;
  };
  consider(s.lease_check);
  if (s.phase == State::Phase::gathering) {
    // A node that is about to come back, or to be lost, is waited for; the lease ends that.
    if (s.count() < s.rules.nodes_min) consider(s.join_deadline);
    if (s.broken == 0) consider(s.last_call);
    consider(s.leaving_until);
    consider(s.standing_due);
  } else {
    consider(s.awaited_until);
  }
  // Often enough to notice when it was us who slept.
  if (!s.nodes.empty()) consider(deadline_after(s.rules.lease / 4, s.now));
  if (s.broken > 0) consider(deadline_after(s.late_at(), s.now));
  return next;
}

std::uint64_t Rounds::epoch() const { return state_->epoch; }
std::uint64_t Rounds::incarnation() const { return state_->incarnation; }
bool Rounds::has_had(std::uint64_t incarnation) const {
  const State& s = *state_;
  const bool before_it = incarnation >= s.use.first_here && incarnation < s.use.number;
  return incarnation == s.incarnation || incarnation <= s.taken_up || before_it;
}
bool Rounds::knows(Session session) const { return state_->nodes.contains(session); }
bool Rounds::finished() const { return state_->phase == State::Phase::finished; }

JobStatus Rounds::status() const {
  const State& s = *state_;
  JobStatus status{
      s.phase,    s.epoch, s.attempt, s.rules.nodes_min, s.rules.nodes_max, s.world_size,
      s.standing, {},      {}};
  if (s.finish_said) status.exit_code = s.finish_said->exit_code;
  status.nodes.reserve(s.nodes.size());
  for (const auto& [session, node] : s.nodes) {
    NodeStatus line{node.offer.id,      node.offer.host, NodeStatus::State::waiting, {}, 0,
                    node.offer.workers, node.last_heard};
    if (node.member()) {
      line.node_rank = node.admission->node_rank;
      line.first_rank = node.admission->first_rank;
      line.state = node.end     ? NodeStatus::State::ended
                   : node.order ? NodeStatus::State::stopping
                                : NodeStatus::State::running;
    }
    if (node.gone) line.state = NodeStatus::State::silent;
    status.nodes.push_back(std::move(line));
  }
  return status;
}

// ---- Who is here ----

Node& Rounds::State::insert(Node node) {
  const Session session = node.session;
  by_id[node.offer.id] = session;
  if (node.offer.rank_hint) by_hint[*node.offer.rank_hint] = session;
  check_by(deadline_after(rules.lease, now));
  return nodes.emplace(session, std::move(node)).first->second;
}

Node Rounds::State::remove(Session session) {
  auto found = nodes.extract(session);
  Node node = std::move(found.mapped());
  if (node.gone) --broken;
  // Its successor may stand there already.
  const auto id = by_id.find(node.offer.id);
  if (id->second == session) by_id.erase(id);
  if (node.offer.rank_hint) {
    const auto hint = by_hint.find(*node.offer.rank_hint);
    if (hint->second == session) by_hint.erase(hint);
  }
  return node;
}

Node* Rounds::State::find(Session session) {
  const auto found = nodes.find(session);
  return found == nodes.end() ? nullptr : &found->second;
}

/// Null where the message is about another epoch than the node's: it changes nothing.
Node* Rounds::State::member_of(Session session, std::uint64_t of_epoch) {
  Node* node = find(session);
  if (!node) return nullptr;
  heard(*node);
  // That it is back may have closed a round.
  return node->member() && of_epoch == epoch ? node : nullptr;
}

void Rounds::State::heard(Node& node) {
  node.last_heard = now;
  if (!node.gone) return;
  node.gone.reset();
  --broken;
  if (phase == Phase::gathering) consider_gathering();
}

void Rounds::State::check_by(Clock::time_point when) {
  lease_check = lease_check ? std::min(*lease_check, when) : when;
}

// ---- Going ----

void Rounds::State::on(const Heartbeat& e) {
  if (Node* node = find(e.session)) return heard(*node);
  const auto given_up = lost.find(e.session);
  if (given_up == lost.end() || phase == Phase::finished) return;
  // A node that only waited goes on waiting; it has heard nothing else.
  if (given_up->second.waiting) {
    const Join again = *given_up->second.waiting;
    lost.erase(given_up);
    return on(again);
  }
  tell_evicted(e.session, given_up->second.epoch);
}

void Rounds::State::on(const Disconnected& e) {
  Node* node = find(e.session);
  if (!node || node->gone) return;
  node->gone = now;
  ++broken;
  check_by(std::min(deadline_after(rules.lease, node->last_heard),
                    deadline_after(rules.reconnect_grace, now)));
}

void Rounds::State::on(const Leave& e) {
  if (!find(e.session) || phase == Phase::finished) return;
  const Node node = remove(e.session);
  // Nobody who goes while others work does so with success.
  const int code = e.exit_code != 0 ? e.exit_code : exit_code::node_lost;
  const std::string reason = "node " + node.offer.id + " left: " + e.reason;
  if (e.closes) return finish_without_host(code, reason);
  if (phase == Phase::gathering) {
    if (re_forming && count() < rules.nodes_min) return finish(code, reason);
    note_leaving();
    return consider_gathering();
  }
  // A node whose workers have ended is needed no more, save for a restart.
  const bool working = node.member() && !node.end;
  if (working) --running;
  const bool needed = working || (node.member() && phase == Phase::stopping);
  if (needed && !left) left = Left{code, reason};
  if (needed) note_leaving();
  if (working) begin_end(EndCause::leave, reason);
}

/// The same cause most often tells the other nodes to go within moments: a signal to all of a job's
/// nodes does not reach them at once. None of them is to start again for that long.
void Rounds::State::note_leaving() {
  if (re_forming) leaving_until = deadline_after(others_leave_within, now);
}

/// Others have its ranks by now, or may.
void Rounds::State::tell_evicted(Session session, std::uint64_t of_epoch, std::string why) {
  lost.erase(session);
  put(Stop{session, of_epoch, Stop::Cause::evicted,
           std::move(why) + "; its workers are ended, and it joins anew"});
}

void Rounds::State::lose(const std::vector<std::pair<Session, std::string>>& whom) {
  std::vector<RanksLost> losses;
  std::string first;
  bool needed = false;
  for (const auto& [session, why] : whom) {
    const Node node = remove(session);
    if (lost.size() >= lost_max) lost.erase(lost.begin());
    Lost& given_up = lost[session];
    if (node.member()) {
      given_up.epoch = node.admission->epoch;
    } else {
      Join& waiting = given_up.waiting.emplace();
      waiting.session = session;
      waiting.offer = node.offer;
      waiting.rules = rules;
    }
    const std::string text = "node " + node.offer.id + " is lost: " + why;
    if (first.empty()) first = text;
    // Its workers are nobody's loss, but it may be missed in the next round.
    if (!node.member() && phase != Phase::gathering) continue;
    note_loss(text);
    if (!node.member() || node.end) continue;
    if (!std::exchange(needed, true)) first = text;
    --running;
    evidence.facts.lost[node.admission->first_rank] = node.admission->local_size;
    // A failure on the lost node itself came before its loss.
    const bool fell_silent_before = cause != EndCause::none && node.last_heard <= caused_at;
    lost_before = lost_before || (fell_silent_before && session != caused_by);
    losses.push_back({epoch, node.admission->first_rank, node.admission->local_size,
                      node.offer.host, text, session});
    if (!rules.continue_on_failure) continue;
    // To a program that goes on without failed workers a lost node is as many of them.
    ends.push_back({session, epoch, WorkersEnded::Outcome::failed, exit_code::node_lost, text});
  }
  if (phase == Phase::gathering) return consider_gathering();
  tell_ranks_lost(std::move(losses));
  if (!needed) return;
  if (!rules.continue_on_failure) return begin_end(EndCause::loss, first);
  stand(first);
  judge_if_ended();
}

/// Neighbours in one sentence: thousands may be lost at once, when a switch fails.
void Rounds::State::tell_ranks_lost(std::vector<RanksLost> losses) {
  std::sort(losses.begin(), losses.end(),
            [](const auto& a, const auto& b) { return a.first_rank < b.first_rank; });
  std::vector<RanksLost> ranges;
  for (auto& next : losses) {
    if (!ranges.empty() && ranges.back().first_rank + ranges.back().count == next.first_rank) {
      RanksLost& range = ranges.back();
      range.count += next.count;
      if (!range.host.ends_with(" and others")) {
        range.host += " and others";
        range.cause += ", and so are others";
      }
      range.except = 0;
    } else {
      ranges.push_back(std::move(next));
    }
  }
  // A node that is about to stop at once needs no complete list.
  constexpr std::size_t told_max = 8;
  constexpr std::size_t said_again_max = 1024;
  for (auto& range : ranges) {
    if (!rules.continue_on_failure && losses_told++ >= told_max) return;
    if (repeated.size() < said_again_max) repeated.push_back(range);
    put(std::move(range));
  }
}

// ---- Time ----

/// How late a tick has to be to say that we stood still: a small part of the shortest time in which
/// a node can be given up.
Clock::duration Rounds::State::late_at() const {
  const auto zero = Clock::duration::zero();
  const auto shortest =
      rules.reconnect_grace > zero ? std::min(rules.lease, rules.reconnect_grace) : rules.lease;
  return std::max(shortest / 4, late_at_least);
}

/// We slept, not they: the process was stopped, or its machine. The time since we last did anything
/// does not count: what they said meanwhile may not have been read yet, and they may have slept,
/// too.
void Rounds::State::forgive_own_stall(Clock::time_point before) {
  if (!asked || now <= deadline_after(late_at(), *asked)) return;
  slept = now - before;
  woke = now;
  for (auto& [session, node] : nodes) {
    node.last_heard = std::min(now, deadline_after(slept, node.last_heard));
    if (node.gone) node.gone = std::min(now, deadline_after(slept, *node.gone));
  }
  if (lease_check) lease_check = deadline_after(slept, *lease_check);
  for (auto* deadline : {&join_deadline, &last_call, &leaving_until, &awaited_until}) {
    if (*deadline) *deadline = deadline_after(slept, **deadline);
  }
}

void Rounds::State::on(const Tick&) {
  if (phase == Phase::finished) return;
  if (lease_check && *lease_check <= now) check_leases();
  if (phase == Phase::gathering) {
    consider_gathering();
  } else if (phase != Phase::finished && awaited_until && *awaited_until <= now) {
    give_up_awaited();
  }
}

/// A node that got no answer for long has closed its connection for that.
std::string Rounds::State::break_text(const Node& node) const {
  const std::string text = "its connection broke";
  const bool meanwhile = woke && *node.gone <= deadline_after(rules.reconnect_grace, *woke);
  if (!meanwhile || slept < rules.lease) return text;
  return text + " while the rendezvous stood still for " + silence_text(slept);
}

void Rounds::State::check_leases() {
  std::vector<std::pair<Session, std::string>> whom;
  lease_check.reset();
  for (const auto& [session, node] : nodes) {
    const auto lease_end = deadline_after(rules.lease, node.last_heard);
    auto end = lease_end;
    if (node.gone) end = std::min(end, deadline_after(rules.reconnect_grace, *node.gone));
    if (end > now) {
      check_by(end);
    } else if (node.gone) {
      whom.emplace_back(session, break_text(node));
    } else {
      whom.emplace_back(session, "silent for " + silence_text(now - node.last_heard));
    }
  }
  if (!whom.empty()) lose(whom);
}

}  // namespace dlaunch::rendezvous
