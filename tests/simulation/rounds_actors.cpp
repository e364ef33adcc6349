// The two kinds of actors in the world: agents, which behave as the launcher's do, and the
// rendezvous, which is the real one in a shell as the service's.
#include "tests/simulation/rounds_world.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous::simulation {
namespace {

using namespace std::chrono_literals;
using Ended = WorkersEnded::Outcome;

std::string number(std::uint64_t n) { return std::to_string(n); }

std::string name_of(const EpochOf& epoch) {
  return "epoch " + number(epoch.number) + " of incarnation " + number(epoch.incarnation);
}

}  // namespace

// ---- Agents ----

void World::start(Agent& agent) {
  if (agent.session != 0 || agent.left) return;
  agent.session = ++last_session_;
  say(agent.offer.id + " is started, session " + number(agent.session));
  agent.exit_code.reset();
  agent.tries = 0;
  connect(agent);
  beat(agent);
}

void World::beat(Agent& agent) {
  after_for(agent, 1s, [this, &agent] {
    if (agent.left || agent.exit_code) return;
    if (agent.connection != 0 && now_ - agent.heard > rules_.liveness.silence_max()) {
      say(agent.offer.id + " gives its connection up");
      break_connection(agent.connection, true);
    }
    tell(agent, Heartbeat{agent.session});
    beat(agent);
  });
}

void World::join(Agent& agent) {
  tell(agent, Join{agent.session, agent.offer, rules_, agent.holding});
}

void World::begin_work(Agent& agent) {
  agent.working = EpochOf{agent.holding->incarnation, agent.holding->epoch};
  agent.stopping = agent.peers_lost = false;
  const EpochOf epoch = *agent.working;
  const bool fails = !calm_ && chance(failing_percent_);
  const auto lasts = calm_ ? between(200, 4000) : between(200, fails ? 10'000 : 40'000);
  after_for(agent, lasts, [this, &agent, epoch, fails] {
    if (agent.working != epoch || agent.stopping) return;
    if (fails) return fail(agent);
    // A worker that waits for lost ones waits until it is stopped.
    if (broken_.contains(epoch) && !rules_.continue_on_failure) return;
    end_work(agent, Ended::succeeded, false);
  });
}

Fact World::fact_of(const Agent& agent, int code, bool consequence) const {
  Fact fact;
  fact.rank = agent.holding->first_rank;
  fact.end = Fact::End::failed;
  fact.exit_code = code;
  fact.when = now_;
  if (consequence) fact.claim = Claim{Fault::lost};
  return fact;
}

void World::fail(Agent& agent) {
  const EpochOf epoch = *agent.working;
  say(agent.offer.id + "'s worker fails");
  broken_.insert(epoch);
  agent.stopping = true;
  agent.failure = WorkerFailed{agent.session, epoch.number, fact_of(agent, 3, false)};
  tell(agent, *agent.failure);
  after_for(agent, between(0, 2000), [this, &agent, epoch] {
    if (agent.working == epoch) end_work(agent, Ended::failed, agent.peers_lost);
  });
}

void World::end_work(Agent& agent, Ended outcome, bool consequence) {
  const EpochOf epoch = *std::exchange(agent.working, std::nullopt);
  agent.stopping = false;
  if (outcome != Ended::succeeded) broken_.insert(epoch);
  const int code = outcome == Ended::failed ? 10 + agent.number : 0;
  agent.end =
      WorkersEnded{agent.session, epoch.number, outcome, code, "it ended on " + agent.offer.id};
  if (outcome == Ended::failed && agent.holding) {
    const Fact fact = fact_of(agent, code, consequence);
    agent.end->facts.ranks.emplace(fact.rank, fact);
  }
  say(agent.offer.id + "'s workers of " + name_of(epoch) + " ended, outcome " +
      number(static_cast<unsigned>(outcome)));
  tell(agent, *agent.end);
  if (!agent.evicted) return;
  agent.evicted = false;
  agent.holding.reset();
  agent.failure.reset();
  agent.end.reset();
  join(agent);
}

void World::take(Agent& agent, const Admit& e) {
  const Admission& a = e.admission;
  const bool known = agent.holding && agent.holding->incarnation == a.incarnation;
  if (known && agent.holding->epoch >= a.epoch) return;
  const EpochOf epoch{a.incarnation, a.epoch};
  // As a real node does: the workers that are there go first.
  if (agent.working)
    return take(agent, Stop{agent.session, agent.working->number, Stop::Cause::evicted,
                            "another epoch has come"});
  say(agent.offer.id + " begins " + name_of(epoch));
  agent.holding = a;
  agent.evicted = false;
  agent.failure.reset();
  agent.end.reset();
  begin_work(agent);
}

void World::take(Agent& agent, const Refuse& e) {
  say(agent.offer.id + " is refused: " + e.reason);
  // Somebody starts it again.
  kill(agent, true);
  after(4s, [this, &agent] { start(agent); });
}

void World::take(Agent& agent, const Stop& e) {
  const bool evicted = e.cause == Stop::Cause::evicted;
  if (evicted && !agent.holding) return join(agent);
  if (!agent.holding || (e.epoch != agent.holding->epoch && !evicted)) return;
  say(agent.offer.id + " is told to stop epoch " + number(e.epoch) + ": " + e.reason);
  if (evicted) agent.evicted = true;
  if (!agent.working) {
    // It has ended already, and has said so.
    if (evicted && agent.end) {
      agent.evicted = false;
      agent.holding.reset();
      agent.failure.reset();
      agent.end.reset();
      join(agent);
    }
    return;
  }
  const EpochOf epoch = *agent.working;
  const bool first = !std::exchange(agent.stopping, true);
  if (!first) return;
  const bool reports = e.cause == Stop::Cause::failure && chance(40);
  after_for(agent, between(0, 2000), [this, &agent, epoch, reports] {
    if (agent.working == epoch) end_work(agent, reports ? Ended::failed : Ended::stopped, reports);
  });
}

void World::take(Agent& agent, const RanksLost& e) {
  if (!agent.holding || e.epoch != agent.holding->epoch || !agent.working) return;
  agent.peers_lost = true;
  // Its workers miss the lost ones, as most programs do.
  if (agent.stopping || rules_.continue_on_failure || !chance(30)) return;
  const EpochOf epoch = *agent.working;
  after_for(agent, between(0, 500), [this, &agent, epoch] {
    if (agent.working == epoch && !agent.stopping) fail(agent);
  });
}

void World::take(Agent& agent, const Finish& e) {
  say(agent.offer.id + " ends with " + std::to_string(e.exit_code));
  // Lost nodes may be at work on an older epoch, and a program that goes on after failures succeeds
  // without its lost workers.
  const EpochOf last{rounds_.incarnation(), rounds_.epoch()};
  if (agent.working == last && e.exit_code == 0 && !rules_.continue_on_failure) {
    violated("the job succeeded while " + agent.offer.id + " was at work");
  }
  agent.exit_code = e.exit_code;
  agent.working.reset();
}

// ---- The rendezvous ----

void World::arrive(int id, Event event) {
  Connection& connection = connections_.at(id);
  if (!connection.open_there || down_) return;
  if (rendezvous_stopped_until_ > now_) {
    return after(rendezvous_stopped_until_ - now_, [this, id, event] { arrive(id, event); });
  }
  const Session session = connection.session;
  const auto current = current_.find(session);
  if (current == current_.end() || current->second != id) return;
  if (std::holds_alternative<Heartbeat>(event)) {
    Agent& agent = *agents_.at(static_cast<std::size_t>(connection.agent));
    send(id, true, [this, &agent, session] {
      if (agent.session == session) agent.heard = now_;
    });
  }
  if (std::holds_alternative<Join>(event)) {
    connection.joined = true;
    if (finish_) return carry_out(*finish_);
    joined_.insert(session);
  }
  if (!connection.joined || !joined_.contains(session) || finish_) return;
  step(event);
  if (!std::holds_alternative<Leave>(event)) return;
  joined_.erase(session);
  gone_.insert(session);
}

void World::step(const Event& event) {
  if (down_ || rendezvous_stopped_until_ > now_) return;
  const Effects effects = rounds_.step(event, now_);
  check(effects);
  for (const auto& effect : effects) carry_out(effect);
  schedule_tick();
}

void World::schedule_tick() {
  const auto next = rounds_.next_deadline();
  if (!next) return;
  const Time when = std::max({*next, now_, rendezvous_stopped_until_});
  if (when >= tick_at_) return;
  tick_at_ = when;
  after(when - now_, [this, when] {
    if (tick_at_ != when) return;
    tick_at_ = Time::max();
    step(Tick{});
    schedule_tick();
  });
}

/// Never two rank maps for one epoch; epochs grow; the ranks of one are 0..world-1, each once.
void World::check(const Effects& effects) {
  std::vector<Admission> closed;
  for (const auto& effect : effects) {
    if (std::holds_alternative<RanksLost>(effect)) ++outcome_.losses;
    if (const auto* finish = std::get_if<Finish>(&effect)) {
      if (finish_) violated("a second end");
      finish_ = *finish;
      say("the job ends: " + finish->sentence);
    }
    const auto* admit = std::get_if<Admit>(&effect);
    if (!admit) continue;
    const Admission& a = admit->admission;
    if (gone_.contains(admit->to)) violated("a node that has left is admitted");
    const EpochOf epoch{a.incarnation, a.epoch};
    auto& map = maps_[epoch];
    const auto [place, is_new] = map.emplace(a.node_rank, a);
    const Admission& known = place->second;
    if (known.first_rank != a.first_rank || known.local_size != a.local_size ||
        known.world_size != a.world_size || known.node_count != a.node_count ||
        known.attempt != a.attempt) {
      violated("two rank maps for " + name_of(epoch));
    }
    if (is_new) closed.push_back(a);
  }
  if (!closed.empty()) check_closed(std::move(closed));
}

void World::check_closed(std::vector<Admission> admissions) {
  const std::uint64_t epoch = admissions.front().epoch;
  say("epoch " + number(epoch) + " with " + number(admissions.size()) + " nodes");
  auto& before = epochs_[admissions.front().incarnation];
  if (epoch <= before) violated("epoch " + number(epoch) + " after epoch " + number(before));
  before = epoch;
  int next = 0;
  for (std::size_t i = 0; i < admissions.size(); ++i) {
    const Admission& a = admissions[i];
    if (a.epoch != epoch || a.node_rank != static_cast<int>(i) || a.first_rank != next) {
      violated("the ranks of epoch " + number(epoch) + " have a hole");
    }
    next += a.local_size;
  }
  const auto nodes = static_cast<int>(admissions.size());
  if (next != admissions.front().world_size || nodes != admissions.front().node_count ||
      nodes < rules_.nodes_min || nodes > rules_.nodes_max) {
    violated("the world of epoch " + number(epoch) + " is not the sum of its nodes");
  }
}

void World::carry_out(const Effect& effect) {
  std::visit(
      [this](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        for (const auto& entry : current_) {
          const Session session = entry.first;
          const int id = entry.second;
          if constexpr (std::is_same_v<E, Admit> || std::is_same_v<E, Refuse> ||
                        std::is_same_v<E, Stop>) {
            if (session != e.to) continue;
          } else if constexpr (std::is_same_v<E, RanksLost>) {
            if (session == e.except || (e.to != 0 && session != e.to)) continue;
          } else if constexpr (std::is_same_v<E, Standing>) {
            continue;
          }
          Connection& connection = connections_.at(id);
          if (!connection.joined) continue;
          Agent& agent = *agents_.at(static_cast<std::size_t>(connection.agent));
          say_late(id);
          Action said = [this, &agent, id, session, e] {
            if (agent.session != session || agent.connection != id) return;
            if (!agent.left && !agent.exit_code) take(agent, e);
          };
          if (std::is_same_v<E, Admit> && story_.late_admissions) {
            connection.late = [this, id, said] { send(id, true, said); };
            after(between(0, chance(20) ? 3000 : 50), [this, id] { say_late(id); });
            continue;
          }
          send(id, true, std::move(said));
          if constexpr (std::is_same_v<E, Refuse>) joined_.erase(session);
        }
      },
      effect);
}

void World::say_late(int id) {
  Connection& connection = connections_.at(id);
  if (!connection.late || down_) return;
  if (rendezvous_stopped_until_ > now_) {
    return after(rendezvous_stopped_until_ - now_, [this, id] { say_late(id); });
  }
  std::exchange(connection.late, nullptr)();
}

}  // namespace dlaunch::rendezvous::simulation
