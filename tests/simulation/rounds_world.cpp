#include "tests/simulation/rounds_world.hpp"

#include <algorithm>
#include <cstdio>
#include <type_traits>
#include <utility>

namespace dlaunch::rendezvous::simulation {
namespace {

using namespace std::chrono_literals;

constexpr auto faults_last = 60s;
/// After the last fault: leases, stops, the time to join, and a last round.
constexpr auto calm_lasts = 200s;

}  // namespace

World::World(unsigned seed, bool trace, Story story) : random_(seed), trace_(trace), story_(story) {
  rules_.nodes_min = 1 + static_cast<int>(below(4));
  rules_.nodes_max = rules_.nodes_min + static_cast<int>(below(3));
  rules_.max_restarts = static_cast<int>(below(4));
  // Not drawn: the seeds that have found something once are to mean the same.
  if (seed % 5 == 2) rules_.restart_window = 10s;
  if (seed % 4 == 1) rules_.restart_backoff = {200ms, 4s};
  rules_.continue_on_failure = chance(15);
  rules_.join_timeout = 30s;
  rules_.last_call = 2s;
  failing_percent_ = below(40);
  fault_interval_ms_ = 1000 + static_cast<int>(below(15'000));
  const bool hints = chance(30);
  if (story.spares) rules_.spares = 1 + static_cast<int>(seed % 3);
  const int count = rules_.nodes_max + (chance(20) && !hints ? 1 : 0) + rules_.spares;
  for (int i = 0; i < count; ++i) {
    auto agent = std::make_unique<Agent>();
    agent->number = i;
    agent->offer.id = "node" + std::to_string(i);
    agent->offer.host = agent->offer.id;
    agent->offer.workers = 1 + static_cast<int>(below(4));
    agent->offer.launch.line = 1;
    if (hints && chance(80) && i < rules_.nodes_max) agent->offer.rank_hint = i;
    agent->drift = 0.97 + 0.01 * below(7);
    agents_.push_back(std::move(agent));
  }
}

Outcome World::run() {
  for (auto& agent : agents_) after(between(0, chance(20) ? 20'000 : 500), [&] { start(*agent); });
  after(between(0, 5000), [this] { fault(); });
  after(faults_last, [this] { end_faults(); });
  const Time end = now_ + faults_last + calm_lasts;
  while (!queue_.empty() && queue_.top().when <= end && outcome_.violation.empty()) {
    Action action = queue_.top().action;
    now_ = queue_.top().when;
    queue_.pop();
    ++outcome_.events;
    action();
    const bool all_over = std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) {
      return agent->session == 0 || agent->left || agent->exit_code;
    });
    if (calm_ && finish_ && all_over) break;
  }
  if (outcome_.violation.empty()) outcome_.violation = verdict();
  outcome_.epochs = maps_.size();
  if (finish_) outcome_.exit_code = finish_->exit_code;
  return outcome_;
}

/// When nothing fails any more the job ends, and for all nodes alike.
std::string World::verdict() const {
  for (const auto& agent : agents_) {
    if (agent->session == 0 || agent->left) continue;
    if (!finish_) return "no progress: " + agent->offer.id + " waits, and nothing comes";
    if (!agent->exit_code) return agent->offer.id + " has not heard of the end";
    if (*agent->exit_code != finish_->exit_code)
      return agent->offer.id + " ended with another code";
    if (agent->working) return agent->offer.id + " has workers after the end";
  }
  return "";
}

// ---- Time and chance ----

Clock::duration World::between(int ms_min, int ms_max) {
  return std::chrono::milliseconds(
      ms_min + static_cast<int>(below(static_cast<unsigned>(ms_max - ms_min + 1))));
}

void World::after(Clock::duration delay, Action action) {
  queue_.push({now_ + delay, order_++, std::move(action)});
}

/// On the agent's own clock; not if it was killed since, and later if it is stopped.
void World::after_for(Agent& agent, Clock::duration delay, Action action) {
  const Session session = agent.session;
  after(
      std::chrono::duration_cast<Clock::duration>(delay * agent.drift),
      [this, &agent, session, action = std::move(action)] { when_awake(agent, session, action); });
}

void World::when_awake(Agent& agent, Session session, const Action& action) {
  if (agent.session != session) return;
  if (agent.stopped_until <= now_) return action();
  after(agent.stopped_until - now_,
        [this, &agent, session, action] { when_awake(agent, session, action); });
}

void World::say(const std::string& text) {
  if (!trace_) return;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - Time(1h)).count();
  std::printf("%9.3f %s\n", static_cast<double>(ms) / 1000, text.c_str());
}

void World::violated(const std::string& what) {
  say("VIOLATED: " + what);
  if (outcome_.violation.empty()) outcome_.violation = what;
}

// ---- Network ----

bool World::rendezvous_reachable(const Agent& agent) const {
  return !down_ && rendezvous_stopped_until_ <= now_ && agent.cut_in_until <= now_ &&
         agent.cut_out_until <= now_;
}

void World::connect_later(Agent& agent) {
  const int backoff = std::min(2000, 50 << std::min(agent.tries++, 6));
  after_for(agent, between(backoff / 2, backoff), [this, &agent] { connect(agent); });
}

void World::connect(Agent& agent) {
  if (agent.connection != 0 || agent.left || agent.exit_code) return;
  if (!rendezvous_reachable(agent)) return connect_later(agent);
  agent.tries = 0;
  const int id = ++last_connection_;
  Connection connection;
  connection.agent = agent.number;
  connection.session = agent.session;
  connections_.emplace(id, std::move(connection));
  agent.connection = id;
  agent.heard = now_;
  // The rendezvous hears the newer of two connections of one session.
  current_[agent.session] = id;
  say(agent.offer.id + " is connected");
  join(agent);
  if (agent.failure) tell(agent, *agent.failure);
  if (agent.end) tell(agent, *agent.end);
}

void World::send(int id, bool to_agent, Action action) {
  Connection& connection = connections_.at(id);
  Channel& channel = to_agent ? connection.to_agent : connection.to_rendezvous;
  channel.under_way.push_back(std::move(action));
  if (!std::exchange(channel.moving, true)) move(id, to_agent);
}

/// A lost packet is sent again, and delays whatever is behind it.
void World::move(int id, bool to_agent) {
  after(chance(3) ? between(200, 1500) : between(0, 20), [this, id, to_agent] {
    Connection& connection = connections_.at(id);
    Channel& channel = to_agent ? connection.to_agent : connection.to_rendezvous;
    const Agent& agent = *agents_.at(static_cast<std::size_t>(connection.agent));
    if (channel.under_way.empty()) {
      channel.moving = false;
      return;
    }
    const Time held = to_agent ? std::max(agent.cut_in_until, agent.stopped_until)
                               : std::max(agent.cut_out_until, rendezvous_stopped_until_);
    if (held > now_) return after(held - now_, [this, id, to_agent] { move(id, to_agent); });
    Action action = std::move(channel.under_way.front());
    channel.under_way.pop_front();
    action();
    move(id, to_agent);
  });
}

/// Each end hears of it when it does.
void World::break_connection(int id, bool keep_under_way) {
  Connection& connection = connections_.at(id);
  Agent& agent = *agents_.at(static_cast<std::size_t>(connection.agent));
  connection.late = nullptr;
  if (!keep_under_way) {
    connection.to_agent.under_way.clear();
    connection.to_rendezvous.under_way.clear();
  }
  send(id, false, [this, id] {
    Connection& broken = connections_.at(id);
    if (!std::exchange(broken.open_there, false)) return;
    const auto current = current_.find(broken.session);
    if (current == current_.end() || current->second != id) return;
    current_.erase(current);
    if (broken.joined && joined_.contains(broken.session)) step(Disconnected{broken.session});
  });
  if (agent.connection != id) {
    connection.open_here = false;
    return;
  }
  connection.open_here = false;
  agent.connection = 0;
  if (agent.session == connection.session) connect_later(agent);
}

void World::tell(Agent& agent, Event event) {
  const int id = agent.connection;
  if (id == 0) return;
  const bool repeatable =
      !std::holds_alternative<Join>(event) && !std::holds_alternative<Leave>(event);
  if (repeatable && chance(5)) {
    after(between(0, 10'000), [this, id, event] { arrive(id, event); });
  }
  send(id, false, [this, id, event = std::move(event)] { arrive(id, event); });
}

// ---- Faults ----

void World::fault() {
  if (calm_) return;
  ++outcome_.faults;
  if (chance(12)) {
    rendezvous_stopped_until_ = now_ + between(500, 9000);
    say("the rendezvous is stopped for a while");
    // Its own timer comes first when it goes on.
    after(rendezvous_stopped_until_ - now_, [this] { step(Tick{}); });
  } else if (chance(6)) {
    restart_rendezvous();
  } else {
    Agent& agent = *agents_.at(below(static_cast<unsigned>(agents_.size())));
    if (agent.session != 0 && !agent.left && !agent.exit_code) fault_of(agent);
  }
  after(between(200, fault_interval_ms_), [this] { fault(); });
}

void World::fault_of(Agent& agent) {
  const std::string& name = agent.offer.id;
  const auto start_again = [&](int ms_min, int ms_max) {
    if (chance(85)) after(between(ms_min, ms_max), [this, &agent] { start(agent); });
  };
  switch (below(8)) {
    case 0:
      say(name + " is killed");
      kill(agent, true);
      return start_again(300, 15'000);
    case 1:
      say(name + " loses power");
      kill(agent, false);
      return start_again(8000, 20'000);
    case 2:
      say(name + " is stopped for a while");
      agent.stopped_until = now_ + between(500, 20'000);
      return;
    case 3:
      say(name + " is cut off");
      agent.cut_in_until = agent.cut_out_until = now_ + between(500, 15'000);
      return;
    case 4:
      say(name + " hears nothing");
      agent.cut_in_until = now_ + between(500, 15'000);
      return;
    case 5:
      say(name + " is not heard");
      agent.cut_out_until = now_ + between(500, 15'000);
      return;
    case 6:
      if (agent.connection == 0) return;
      say(name + "'s connection breaks");
      return break_connection(agent.connection, chance(50));
    default:
      if (agent.connection == 0 || !chance(25)) return;
      say(name + " leaves");
      tell(agent, Leave{agent.session, 143, "stopped by SIGTERM", false});
      agent.left = true;
      if (agent.working) broken_.insert(*std::exchange(agent.working, std::nullopt));
      return;
  }
}

/// Its workers die with it.
void World::kill(Agent& agent, bool connection_too) {
  const int id = std::exchange(agent.connection, 0);
  agent.session = 0;
  if (agent.working) broken_.insert(*std::exchange(agent.working, std::nullopt));
  agent.stopping = agent.evicted = agent.peers_lost = false;
  agent.holding.reset();
  agent.failure.reset();
  agent.end.reset();
  agent.stopped_until = {};
  if (id != 0 && connection_too) break_connection(id, chance(50));
}

void World::restart_rendezvous() {
  say("the rendezvous is killed");
  down_ = true;
  const auto back_in = between(100, 8000);
  // It has kept its last epoch; or nothing, and then the next use of the job's name is another one.
  if (chance(50)) {
    const std::uint64_t known = rounds_.incarnation();
    rounds_ =
        Rounds(epochs_[known], {known, known, now_ + back_in + rules_.liveness.returns_within()});
  } else {
    const std::uint64_t other = ++last_incarnation_;
    rounds_ = Rounds(0, {other, other, now_ + back_in + rules_.liveness.returns_within()});
  }
  tick_at_ = Time::max();
  joined_.clear();
  current_.clear();
  for (auto& [id, connection] : connections_) {
    connection.open_there = false;
    connection.late = nullptr;
    if (!connection.open_here) continue;
    connection.to_agent.under_way.clear();
    connection.to_rendezvous.under_way.clear();
    Agent& agent = *agents_.at(static_cast<std::size_t>(connection.agent));
    if (agent.connection != id) continue;
    connection.open_here = false;
    agent.connection = 0;
    if (agent.session == connection.session) connect_later(agent);
  }
  after(back_in, [this] {
    say("the rendezvous is there again");
    down_ = false;
  });
}

void World::end_faults() {
  say("no more faults");
  calm_ = true;
  for (auto& agent : agents_) {
    agent->stopped_until = std::min(agent->stopped_until, now_);
    agent->cut_in_until = std::min(agent->cut_in_until, now_);
    agent->cut_out_until = std::min(agent->cut_out_until, now_);
  }
}

}  // namespace dlaunch::rendezvous::simulation
