#include "rendezvous/rounds.hpp"

#include "rendezvous/rounds_state.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

constexpr int usage_code = 64;
/// Who was evicted is remembered, to be told so; the oldest make room.
constexpr std::size_t evicted_max = 4096;

std::string plural(int count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string nodes_text(const JobRules& rules) {
  if (rules.nodes_min == rules.nodes_max) return plural(rules.nodes_max, "node");
  return std::to_string(rules.nodes_min) + " to " + plural(rules.nodes_max, "node");
}

}  // namespace

Rounds::Rounds(std::uint64_t last_epoch) : state_(std::make_unique<State>()) {
  state_->epoch = last_epoch;
}
Rounds::~Rounds() = default;
Rounds::Rounds(Rounds&&) noexcept = default;
Rounds& Rounds::operator=(Rounds&&) noexcept = default;

Effects Rounds::step(const Event& event, Clock::time_point now) {
  State& s = *state_;
  s.now = now;
  s.effects.clear();
  s.forgive_own_stall();
  std::visit([&s](const auto& e) { s.on(e); }, event);
  s.asked = next_deadline();
  return std::exchange(s.effects, {});
}

std::optional<Clock::time_point> Rounds::next_deadline() const {
  const State& s = *state_;
  if (s.phase == State::Phase::finished) return std::nullopt;
  std::optional<Clock::time_point> next;
  const auto consider = [&](const std::optional<Clock::time_point>& when) {
    if (when && (!next || *when < *next)) next = when;
  };
  consider(s.lease_check);
  if (s.phase == State::Phase::gathering) {
    consider(s.join_deadline);
    consider(s.last_call);
    consider(s.standing_due);
  }
  return next;
}

std::uint64_t Rounds::epoch() const { return state_->epoch; }
bool Rounds::finished() const { return state_->phase == State::Phase::finished; }

JobStatus Rounds::status() const {
  const State& s = *state_;
  JobStatus status{
      s.phase,    s.epoch, s.attempt, s.rules.nodes_min, s.rules.nodes_max, s.world_size,
      s.standing, {},      {}};
  if (s.verdict) status.exit_code = s.verdict->exit_code;
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

Node& Rounds::State::insert(Node node) {
  const Session session = node.session;
  by_id[node.offer.id] = session;
  if (node.offer.rank_hint) by_hint[*node.offer.rank_hint] = session;
  const auto lease_end = now + rules.lease;
  lease_check = lease_check ? std::min(*lease_check, lease_end) : lease_end;
  return nodes.emplace(session, std::move(node)).first->second;
}

Node Rounds::State::remove(Session session) {
  const auto found = nodes.find(session);
  Node node = std::move(found->second);
  nodes.erase(found);
  by_id.erase(node.offer.id);
  if (node.offer.rank_hint) by_hint.erase(*node.offer.rank_hint);
  return node;
}

Node* Rounds::State::find(Session session) {
  const auto found = nodes.find(session);
  return found == nodes.end() ? nullptr : &found->second;
}

Node* Rounds::State::member_of(Session session, std::uint64_t of_epoch) {
  Node* node = find(session);
  if (node) {
    node->last_heard = now;
    node->gone.reset();
  }
  return node && node->member() && of_epoch == epoch ? node : nullptr;
}

/// We slept, not they: the process was stopped, or its machine.
void Rounds::State::forgive_own_stall() {
  if (!asked || now <= *asked + rules.lease / 2) return;
  for (auto& [session, node] : nodes) {
    node.last_heard = now;
    if (node.gone) node.gone = now;
  }
  if (lease_check) lease_check = now + std::min(rules.lease, rules.reconnect_grace);
}

// ---- Coming ----

void Rounds::State::on(const Join& e) {
  if (phase == Phase::finished) {
    effects.push_back(Refuse{e.session, Errc::refused, usage_code, "the job is over"});
    return;
  }
  if (Node* node = find(e.session)) return join_again(*node, e);
  // It was given up while it was silent, and others may have its ranks by now.
  const bool unknown_epoch = e.holding && (epoch != 0 || evicted.contains(e.session));
  const bool to_be_adopted = e.holding && !evicted.contains(e.session) &&
                             (!has_rules || (phase == Phase::running && cause == EndCause::none &&
                                             e.holding->epoch == epoch && running < members));
  if (unknown_epoch && !to_be_adopted) return evict(e.session, e.holding->epoch);
  evicted.erase(e.session);
  if (auto no = objection(e)) {
    effects.push_back(std::move(*no));
    return;
  }
  if (!std::exchange(has_rules, true)) rules = e.rules;
  Node node;
  node.session = e.session;
  node.offer = e.offer;
  node.joined = node.last_heard = now;
  insert(std::move(node));
  if (e.holding) return adopt(e);
  if (phase == Phase::gathering) return consider_gathering(e.session);
  const bool room = members < static_cast<std::size_t>(rules.nodes_max);
  // Who has begun to end is let end; the newcomer's turn comes with the next round, if there is
  // one.
  if (phase == Phase::running && room && ends.empty()) {
    return begin_end(EndCause::arrival, "node " + e.offer.id + " joins");
  }
  stand("node " + e.offer.id + " waits: the job runs on " +
        plural(static_cast<int>(members), "node") + ", it is next when one is lost");
}

/// After a reconnect: whatever may have been lost on the way is said again.
void Rounds::State::join_again(Node& node, const Join& e) {
  node.last_heard = now;
  node.gone.reset();
  if (!standing.empty()) effects.push_back(Standing{node.session, standing});
  if (!node.member()) return;
  const bool knows = e.holding && e.holding->epoch == epoch;
  if (!knows) effects.push_back(Admit{node.session, *node.admission});
  if (node.order && !node.end) effects.push_back(*node.order);
}

std::optional<Refuse> Rounds::State::objection(const Join& e) {
  const auto refuse = [&](Errc code, std::string why) {
    return Refuse{e.session, code, usage_code, std::move(why)};
  };
  const std::string name = "node " + e.offer.id;
  if (has_rules) {
    if (e.rules.nodes_min != rules.nodes_min || e.rules.nodes_max != rules.nodes_max) {
      return refuse(Errc::mismatch, name + " asks for " + nodes_text(e.rules) +
                                        " (--nnodes), this " + "job has " + nodes_text(rules));
    }
    if (e.rules.max_restarts != rules.max_restarts) {
      return refuse(Errc::mismatch, name + " asks for --max-restarts " +
                                        std::to_string(e.rules.max_restarts) + ", this job has " +
                                        std::to_string(rules.max_restarts));
    }
    if (e.rules.continue_on_failure != rules.continue_on_failure) {
      return refuse(Errc::mismatch, name + " asks for another --on-failure than this job has");
    }
  }
  if (e.offer.rank_hint.value_or(0) >= e.rules.nodes_max) {
    return refuse(Errc::refused, name + " asks for node rank " +
                                     std::to_string(*e.offer.rank_hint) + ", the last one is " +
                                     std::to_string(e.rules.nodes_max - 1));
  }
  const auto same_id = by_id.find(e.offer.id);
  if (same_id != by_id.end()) {
    const Node& other = nodes.at(same_id->second);
    if (!other.gone) {
      return refuse(Errc::refused, "there is a node " + e.offer.id + " already, on " +
                                       other.offer.host + "; give this one another --node-id");
    }
    // It was started anew, and is here before its predecessor is given up.
    lose(same_id->second, "it was started again");
  }
  if (!e.offer.rank_hint) return std::nullopt;
  const auto same_rank = by_hint.find(*e.offer.rank_hint);
  if (same_rank != by_hint.end()) {
    const Node& other = nodes.at(same_rank->second);
    if (!other.gone) {
      return refuse(Errc::refused, "node rank " + std::to_string(*e.offer.rank_hint) +
                                       " is taken by node " + other.offer.id + " on " +
                                       other.offer.host);
    }
    lose(same_rank->second, "it was started again");
  }
  return std::nullopt;
}

/// The rendezvous was started anew and knows nothing of a job that runs.
void Rounds::State::adopt(const Join& e) {
  const Holding& held = *e.holding;
  Node& node = nodes.at(e.session);
  if (phase == Phase::gathering) {
    phase = Phase::running;
    epoch = held.epoch;
    attempt = held.attempt;
    world_size = held.world_size;
    members = static_cast<std::size_t>(held.node_count);
    re_forming = true;
    running = 0;
    join_deadline = now + rules.lease + rules.reconnect_grace;
  }
  Admission admission;
  admission.epoch = held.epoch;
  admission.attempt = held.attempt;
  admission.node_rank = held.node_rank;
  admission.node_count = held.node_count;
  admission.first_rank = held.first_rank;
  admission.local_size = e.offer.workers;
  admission.world_size = held.world_size;
  node.admission = std::move(admission);
  rank_of[e.offer.id] = held.node_rank;
  ++running;
  stand("epoch " + std::to_string(epoch) + " goes on; " + std::to_string(running) + " of " +
        plural(held.node_count, "node") + " are back");
}

// ---- Going ----

void Rounds::State::on(const Heartbeat& e) {
  if (Node* node = find(e.session)) {
    node->last_heard = now;
    node->gone.reset();
  } else if (evicted.contains(e.session)) {
    evict(e.session, epoch);
  }
}

void Rounds::State::on(const Disconnected& e) {
  Node* node = find(e.session);
  if (!node || node->gone) return;
  node->gone = now;
  const auto check = std::min(node->last_heard + rules.lease, now + rules.reconnect_grace);
  lease_check = lease_check ? std::min(*lease_check, check) : check;
}

void Rounds::State::on(const Leave& e) {
  if (!find(e.session) || phase == Phase::finished) return;
  const Node node = remove(e.session);
  closes = closes || e.closes;
  if (!node.member()) {
    if (closes) return finish(e.exit_code, {}, "node " + node.offer.id + " was " + e.reason);
    if (phase == Phase::gathering) consider_gathering();
    return;
  }
  if (!node.end) --running;
  if (cause == EndCause::none) leave_code = e.exit_code;
  begin_end(EndCause::leave, "node " + node.offer.id + " was " + e.reason);
}

void Rounds::State::evict(Session session, std::uint64_t of_epoch) {
  if (evicted.size() >= evicted_max) evicted.erase(evicted.begin());
  evicted.insert(session);
  effects.push_back(Stop{session, of_epoch, Stop::Cause::evicted,
                         "this node was silent for too long, and the job went on without it; its "
                         "workers are ended, and it joins anew"});
}

void Rounds::State::lose(Session session, const std::string& why) {
  const Node node = remove(session);
  if (evicted.size() >= evicted_max) evicted.erase(evicted.begin());
  evicted.insert(session);
  if (phase == Phase::finished) return;
  if (!node.member()) {
    if (phase == Phase::gathering) {
      after_loss = true;
      consider_gathering();
    }
    return;
  }
  // What has ended cannot be lost any more.
  if (node.end) return;
  --running;
  const std::string cause_text = "node " + node.offer.id + " is lost: " + why;
  effects.push_back(RanksLost{epoch, node.admission->first_rank, node.admission->local_size,
                              node.offer.host, cause_text, session});
  after_loss = true;
  begin_end(EndCause::loss, cause_text);
}

// ---- Time ----

void Rounds::State::on(const Tick&) {
  if (phase == Phase::finished) return;
  if (lease_check && *lease_check <= now) {
    std::vector<std::pair<Session, std::string>> lost;
    std::optional<Clock::time_point> next;
    for (const auto& [session, node] : nodes) {
      auto end = node.last_heard + rules.lease;
      std::string why = "silent for " + duration_text(rules.lease);
      if (node.gone && *node.gone + rules.reconnect_grace <= end) {
        end = *node.gone + rules.reconnect_grace;
        why = "its connection broke";
      }
      if (end <= now) {
        lost.emplace_back(session, std::move(why));
      } else if (!next || end < *next) {
        next = end;
      }
    }
    lease_check = next;
    for (const auto& [session, why] : lost) {
      if (nodes.contains(session)) lose(session, why);
    }
  }
  if (phase == Phase::gathering) return consider_gathering();
  // Those who have not come back after the rendezvous was started anew.
  if (phase == Phase::running && join_deadline && *join_deadline <= now) {
    join_deadline.reset();
    if (nodes.size() < members && cause == EndCause::none) {
      after_loss = true;
      begin_end(EndCause::loss, plural(static_cast<int>(members - nodes.size()), "node") +
                                    " did not come back to the rendezvous");
    }
  }
}

}  // namespace dlaunch::rendezvous
