// Runs the transcripts in tests/scenario/rounds, and random histories for what must hold always.
#include "tests/support/rounds_story.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

Clock::time_point at(Clock::duration since_start) { return Clock::time_point(since_start); }

NodeOffer offer(const std::string& id, int workers = 1) {
  NodeOffer node;
  node.id = id;
  node.host = "host-" + id;
  node.workers = workers;
  return node;
}

template <class T>
std::vector<T> all_of(const Effects& effects) {
  std::vector<T> found;
  for (const auto& effect : effects) {
    if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
  }
  return found;
}

/// Rules that must hold for all that a Rounds says, over its whole life.
struct Invariants {
  std::uint64_t epoch = 0;
  int finishes = 0;
  std::map<std::uint64_t, std::map<Session, Admission>> maps;

  void check(const Rounds& rounds, const Event& event, const Effects& effects,
             Clock::time_point now) {
    CHECK(rounds.epoch() >= epoch);
    epoch = rounds.epoch();
    for (const auto& admit : all_of<Admit>(effects)) {
      const auto [place, is_new] = maps[admit.admission.epoch].emplace(admit.to, admit.admission);
      CHECK(place->second == admit.admission);
    }
    for (const auto& finish : all_of<Finish>(effects)) {
      CHECK(rounds.finished());
      CHECK(!finish.sentence.empty());
      ++finishes;
    }
    for (const auto& refuse : all_of<Refuse>(effects)) {
      CHECK(refuse.exit_code != 0);
      CHECK(!refuse.reason.empty());
    }
    const auto next = rounds.next_deadline();
    // Else the shell would spin.
    if (std::holds_alternative<Tick>(event)) CHECK((!next || *next > now));
    if (rounds.finished()) CHECK(!next);
  }

  /// The ranks of each epoch are 0..world-1, each once.
  void check_maps() const {
    for (const auto& [number, places] : maps) {
      std::map<int, int> by_first;
      for (const auto& [session, place] : places) {
        CHECK(by_first.emplace(place.first_rank, place.local_size).second);
      }
      const Admission& any = places.begin()->second;
      if (static_cast<int>(places.size()) != any.node_count) continue;  // Taken up, not closed.
      int next = 0;
      for (const auto& [first, size] : by_first) {
        CHECK(first == next);
        next += size;
      }
      CHECK(next == any.world_size);
    }
  }
};

/// Something that a node may say, sensible or not.
Event random_event(std::mt19937& random, const Rounds& rounds, const JobRules& rules) {
  const auto below = [&](unsigned n) { return random() % n; };
  const Session session = 1 + below(6);
  const std::uint64_t epoch = below(8) == 0 ? below(4) : rounds.epoch();
  Join join{session,
            offer(std::string(1, static_cast<char>('a' + session % 4)),
                  1 + static_cast<int>(session % 3)),
            rules, std::nullopt};
  if (below(10) == 0) join.offer.rank_hint = static_cast<int>(below(4));
  if (below(12) == 0) {
    join.holding =
        Holding{1, 1 + below(4), 0, static_cast<int>(below(3)), 2, static_cast<int>(below(4)), 4};
  }
  using Outcome = WorkersEnded::Outcome;
  const auto outcome = below(30) == 0 ? Outcome::spawn_failed : static_cast<Outcome>(below(3));
  Fact fact;
  fact.rank = static_cast<int>(below(6));
  fact.end = static_cast<Fact::End>(below(3));
  fact.exit_code = 3;
  fact.when = at(below(9) * 1s);
  if (below(2) == 0) fact.claim = Claim{static_cast<Fault>(below(6)), {static_cast<int>(below(6))}};
  WorkersEnded ended{session, epoch, outcome, outcome == Outcome::failed ? 3 : 0, "it ended"};
  ended.facts.ranks.emplace(fact.rank, fact);
  fact.end = Fact::End::failed;
  CommunicatorCalls made;
  made.count = 1;
  made.digest = below(8);
  const std::vector<Event> choices = {
      join,
      Leave{session, 143, "stopped by SIGTERM", below(8) == 0, below(8) == 0},
      Disconnected{session},
      Heartbeat{session},
      WorkerFailed{session, epoch, fact},
      WorkerLeft{session, epoch, static_cast<int>(below(6))},
      ended,
      CallsMade{session, epoch, {made}},
      TookPlace{session, epoch},
      Tick{},
      StopJob{143, "stopped by operator 'ada'"},
      DrainJob{"being drained by operator 'ada'"},
      EvictNode{session, "evicted by operator 'ada'"}};
  static const std::array<std::size_t, 17> weights = {0, 0, 0, 0, 1, 2, 3, 3, 3,
                                                      4, 5, 6, 6, 7, 8, 9, 9};
  std::size_t pick = weights.at(below(weights.size()));
  if (pick == 1 && below(4) != 0) pick = 3;
  if (pick == 3 && below(40) == 0) pick = 10 + below(3);
  return choices.at(pick);
}

JobRules rules_for(int nodes) {
  return {.nodes_min = nodes, .nodes_max = nodes, .join_timeout = 10min};
}

}  // namespace

TEST_CASE("rounds transcripts") {
  CHECK(replay_rounds(DLAUNCH_SOURCE_DIR "/tests/scenario/rounds") >= 200);
}

TEST_CASE("every state answers every event, and what must hold holds") {
  std::map<std::pair<JobStatus::State, std::size_t>, int> seen;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    JobRules rules;
    rules.nodes_min = 1 + static_cast<int>(random() % 3);
    rules.nodes_max = rules.nodes_min + static_cast<int>(random() % 2);
    rules.max_restarts = static_cast<int>(random() % 4);
    rules.continue_on_failure = random() % 5 == 0;
    rules.last_call = 2s;
    rules.join_timeout = 60s;
    std::optional<Hosting> hosting;
    if (random() % 2 == 0) hosting.emplace();
    Rounds rounds(random() % 3, {1, 1}, "", hosting);
    Invariants invariants;
    auto now = at(1h);
    for (int i = 0; i < 150; ++i) {
      now += std::chrono::milliseconds(random() % 400);
      const Event event = random_event(random, rounds, rules);
      const auto before = rounds.status().state;
      ++seen[{before, event.index()}];
      const Effects effects = rounds.step(event, now);
      invariants.check(rounds, event, effects, now);
      if (before != JobStatus::State::finished) continue;
      CHECK(rounds.finished());
      for (const auto& effect : effects) {
        CHECK((std::holds_alternative<Refuse>(effect) || std::holds_alternative<Finish>(effect)));
      }
    }
    invariants.check_maps();
    // Time alone, when nobody says anything any more, ends it.
    for (int i = 0; i < 1000 && rounds.next_deadline(); ++i) {
      now = std::max(now, *rounds.next_deadline());
      invariants.check(rounds, Tick{}, rounds.step(Tick{}, now), now);
    }
    CHECK((rounds.finished() || rounds.status().nodes.empty()));
  }
  for (int state = 0; state <= static_cast<int>(JobStatus::State::finished); ++state) {
    for (std::size_t event = 0; event < std::variant_size_v<Event>; ++event) {
      CHECK_MESSAGE((seen.contains({static_cast<JobStatus::State>(state), event})),
                    "state " << state << " never met event " << event);
    }
  }
}

TEST_CASE("numbers that make no sense are refused, and overflow nothing") {
  const int big = std::numeric_limits<int>::max();
  const auto refused = [](const NodeOffer& node, const JobRules& rules,
                          std::optional<Holding> holding = std::nullopt) {
    Rounds rounds;
    const Effects effects = rounds.step(Join{1, node, rules, holding}, at(1h));
    CHECK(rounds.status().nodes.empty());
    return effects.size() == 1 && std::holds_alternative<Refuse>(effects[0]);
  };
  const JobRules good = rules_for(1);
  CHECK(refused(offer("a", 0), good));
  CHECK(refused(offer("a", -1), good));
  CHECK(refused(offer("a", big), good));
  CHECK(refused(offer(""), good));
  const auto with = [&](auto change) {
    JobRules rules = good;
    change(rules);
    return rules;
  };
  CHECK(refused(offer("a"), with([](auto& r) { r.nodes_min = 0; })));
  CHECK(refused(offer("a"), with([](auto& r) { r.nodes_min = 2; })));
  CHECK(refused(offer("a"), with([&](auto& r) { r.nodes_max = big; })));
  CHECK(refused(offer("a"), with([](auto& r) { r.max_restarts = -1; })));
  CHECK(refused(offer("a"), with([](auto& r) { r.liveness.lease = 0s; })));
  CHECK(refused(offer("a"), with([](auto& r) { r.join_timeout = -1s; })));
  CHECK(refused(offer("a"), good, Holding{1, 0, 0, 0, 1, 0, 1}));
  CHECK(refused(offer("a"), good, Holding{1, ~std::uint64_t{0}, 0, 0, 1, 0, 1}));
  CHECK(refused(offer("a"), good, Holding{1, 5, 0, 0, 1, big, 1}));
  CHECK(refused(offer("a"), good, Holding{1, 5, 0, -1, 1, 0, 1}));
  CHECK(refused(offer("a"), good, Holding{1, 5, 0, 0, big, 0, 1}));
}

TEST_CASE("timeouts without an end are none") {
  JobRules rules;
  rules.nodes_min = 1;
  rules.nodes_max = 2;
  rules.join_timeout = rules.last_call = rules.liveness.lease = rules.liveness.reconnect_grace =
      Clock::duration::max();
  Rounds rounds;
  rounds.step(Join{1, offer("a"), rules, {}}, at(1h));
  rounds.step(Disconnected{1}, at(2h));
  for (int hour = 3; hour < 40; ++hour) CHECK(rounds.step(Tick{}, at(hour * 1h)).empty());
  CHECK(rounds.status().nodes.size() == 1);
  CHECK(rounds.step(Join{2, offer("b"), rules, {}}, at(41h)).size() <= 1);
  const auto closed = rounds.step(Heartbeat{1}, at(42h));
  CHECK(all_of<Admit>(closed).size() == 2);
}

TEST_CASE("only node rank 0 gets the roster, and all get its store's addresses") {
  JobRules rules = rules_for(2);
  Rounds rounds(41);
  NodeOffer a = offer("a", 3);
  a.store_addresses = {"10.0.0.1:29500", "[fd00::1]:29500"};
  NodeOffer b = offer("b", 5);
  b.store_addresses = {"10.0.0.2:29500"};
  rounds.step(Join{7, b, rules, {}}, at(1h));
  const auto admits = all_of<Admit>(rounds.step(Join{8, a, rules, {}}, at(1h)));
  REQUIRE(admits.size() == 2);
  CHECK(admits[0].to == 8);
  CHECK(admits[0].admission.epoch == 42);
  CHECK(*admits[0].admission.store_addresses == a.store_addresses);
  CHECK(*admits[1].admission.store_addresses == a.store_addresses);
  CHECK(admits[1].admission.roster->empty());
  const std::vector<Admission::Entry> roster = {{"a", "host-a", 0, 3, a.store_addresses},
                                                {"b", "host-b", 3, 5, b.store_addresses}};
  CHECK(*admits[0].admission.roster == roster);
}

TEST_CASE("what it looks like from outside") {
  JobRules rules = rules_for(2);
  Rounds rounds;
  CHECK(rounds.status().state == JobStatus::State::gathering);
  CHECK(!rounds.next_deadline());
  rounds.step(Tick{}, at(1h));
  CHECK(!rounds.next_deadline());
  rounds.step(Join{1, offer("a", 2), rules, {}}, at(1h));
  JobStatus status = rounds.status();
  CHECK(status.nodes_max == 2);
  CHECK(status.standing == "1 of 2 nodes (a); waiting up to 10 min");
  REQUIRE(status.nodes.size() == 1);
  CHECK(status.nodes[0].state == NodeStatus::State::waiting);
  rounds.step(Join{2, offer("b", 2), rules, {}}, at(1h));
  rounds.step(WorkersEnded{1, 1, WorkersEnded::Outcome::succeeded, 0, ""}, at(1h + 1s));
  rounds.step(Disconnected{2}, at(1h + 2s));
  status = rounds.status();
  CHECK(status.state == JobStatus::State::running);
  CHECK(status.world_size == 4);
  CHECK(status.nodes[0].state == NodeStatus::State::ended);
  CHECK(status.nodes[1].state == NodeStatus::State::silent);
  CHECK(status.nodes[1].first_rank == 2);
  rounds.step(Heartbeat{2}, at(1h + 3s));
  Fact fact;
  fact.rank = 3;
  fact.end = Fact::End::failed;
  fact.exit_code = 9;
  rounds.step(WorkerFailed{2, 1, fact}, at(1h + 3s));
  CHECK(rounds.status().state == JobStatus::State::stopping);
  rounds.step(WorkersEnded{2, 1, WorkersEnded::Outcome::failed, 9, ""}, at(1h + 4s));
  CHECK(rounds.finished());
  CHECK(rounds.status().exit_code == 9);
}

namespace {

/// The events that one node sends from its first failure on, in order.
using Said = std::vector<Event>;

Fact ended_as(int rank, Fact::End end, int code, std::optional<Claim> claim = std::nullopt) {
  Fact fact;
  fact.rank = rank;
  fact.end = end;
  fact.exit_code = code;
  fact.when = at(1h + std::chrono::milliseconds(100 - rank));
  fact.claim = std::move(claim);
  return fact;
}

Said said_by(Session node, const std::vector<Fact>& facts, const std::vector<int>& left = {}) {
  Said said;
  WorkersEnded ended{node, 1, WorkersEnded::Outcome::stopped, 0, ""};
  for (const int rank : left) {
    said.emplace_back(WorkerLeft{node, 1, rank});
    ended.facts.add_left(rank);
  }
  for (const Fact& fact : facts) {
    if (fact.failed()) {
      said.emplace_back(WorkerFailed{node, 1, fact});
      ended.outcome = WorkersEnded::Outcome::failed;
      ended.exit_code = fact.exit_code;
    }
    ended.facts.ranks.emplace(fact.rank, fact);
  }
  if (left.size() == 2) ended.outcome = WorkersEnded::Outcome::succeeded;
  said.emplace_back(ended);
  return said;
}

/// How a job of three nodes with two ranks each ends, where the nodes' words come in this order.
std::string end_in_order(const std::vector<Said>& nodes, const std::vector<std::size_t>& order) {
  JobRules rules = rules_for(3);
  Rounds rounds;
  for (Session node = 1; node <= 3; ++node) {
    rounds.step(Join{node, offer(std::string(1, static_cast<char>('a' + node - 1)), 2), rules, {}},
                at(1h));
  }
  std::vector<std::size_t> next(nodes.size());
  std::string end;
  for (const std::size_t node : order) {
    for (const auto& finish : all_of<Finish>(rounds.step(nodes[node][next[node]++], at(1h + 1s)))) {
      end += std::to_string(finish.exit_code) + " " + finish.sentence;
    }
  }
  return end;
}

/// Checks all orders, or some hundred of very many.
void check_all_orders(const std::vector<Said>& nodes, const std::string& expected) {
  std::vector<std::size_t> order;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    order.insert(order.end(), nodes[node].size(), node);
  }
  constexpr int orders_max = 700;
  int orders = 0;
  do {
    CHECK(end_in_order(nodes, order) == expected);
  } while (++orders < orders_max && std::next_permutation(order.begin(), order.end()));
  std::mt19937 random(7);
  for (int i = 0; i < orders_max && orders == orders_max; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    CHECK(end_in_order(nodes, order) == expected);
  }
}

}  // namespace

TEST_CASE("the root cause and the code are the same in whatever order the nodes are heard") {
  using End = Fact::End;
  const auto lost = [](std::vector<int> ranks) { return Claim{Fault::lost, std::move(ranks)}; };
  SUBCASE("one left early, of which some have only heard by others") {
    check_all_orders({said_by(1, {ended_as(0, End::failed, 75, lost({3})),
                                  ended_as(1, End::failed, 74, lost({}))}),
                      said_by(2, {ended_as(2, End::running, 0)}, {3}),
                      said_by(3, {ended_as(4, End::failed, 73, lost({0})),
                                  ended_as(5, End::failed, 72, lost({4}))})},
                     "72 rank 3 on host-b exited with 0 before the others");
  }
  SUBCASE("one was killed, and its victims end before it does") {
    check_all_orders(
        {said_by(
             1, {ended_as(0, End::failed, 75, lost({5})), ended_as(1, End::failed, 75, lost({0}))}),
         said_by(2, {ended_as(2, End::failed, 75, lost({1}))}, {}),
         said_by(3, {ended_as(4, End::failed, 75, lost({})), ended_as(5, End::failed, 3)})},
        "3 rank 5 on host-c exited with 3");
  }
  SUBCASE("one did not come, and ends when it is told to") {
    Claim absent{Fault::absent, {2}};
    absent.doing = "stopped by a signal";
    check_all_orders(
        {said_by(1, {ended_as(0, End::failed, 6, absent), ended_as(1, End::failed, 7, absent)}),
         said_by(2, {ended_as(2, End::running, 0), ended_as(3, End::running, 0, absent)}),
         said_by(3, {ended_as(4, End::failed, 8, absent)})},
        "8 rank 2 on host-b did not come in time: stopped by a signal");
  }
  SUBCASE("one made another call than the others") {
    const auto vote = [](int rank) { return Vote{rank, rank == 4 ? 99U : 11U}; };
    const auto differs = [&](int rank, int other) {
      return Claim{Fault::disagreed, {other}, 1, 3, {vote(rank), vote(other)}, ""};
    };
    check_all_orders({said_by(1, {ended_as(0, End::failed, 6, differs(0, 4))}),
                      said_by(2, {ended_as(2, End::failed, 7, differs(2, 4))}),
                      said_by(3, {ended_as(4, End::failed, 8, differs(4, 0)),
                                  ended_as(5, End::running, 0, differs(5, 4))})},
                     "8 rank 4 on host-c made another call than the others");
  }
  SUBCASE("two ranks disagree, and nobody else was there") {
    const Claim differs{Fault::disagreed, {}, 1, 3, {{0, 11}, {5, 99}}, ""};
    check_all_orders({said_by(1, {ended_as(0, End::failed, 6, differs)}),
                      said_by(2, {ended_as(2, End::running, 0)}),
                      said_by(3, {ended_as(5, End::failed, 8, differs)})},
                     "6 rank 0 on host-a and rank 5 on host-c made calls that do not agree");
  }
  SUBCASE("all of a node's ranks left") {
    check_all_orders({said_by(1, {ended_as(0, End::failed, 75, lost({2}))}), said_by(2, {}, {2, 3}),
                      said_by(3, {ended_as(4, End::failed, 74, lost({3}))})},
                     "74 rank 2 on host-b and rank 3 on host-b exited with 0 before the others");
  }
}

TEST_CASE("what was known of an epoch's ranks is not believed of the next one's") {
  JobRules rules = rules_for(2);
  rules.max_restarts = 1;
  Rounds rounds;
  rounds.step(Join{1, offer("a"), rules, {}}, at(1h));
  rounds.step(Join{2, offer("b"), rules, {}}, at(1h));
  const auto left = [&](std::uint64_t epoch) {
    return all_of<RanksLost>(rounds.step(WorkerLeft{2, epoch, 1}, at(1h + 1s))).size();
  };
  CHECK(left(1) == 1);
  CHECK(left(1) == 0);
  const Fact failed = ended_as(0, Fact::End::failed, 3);
  WorkersEnded end{1, 1, WorkersEnded::Outcome::failed, 3, ""};
  end.facts.ranks.emplace(0, failed);
  rounds.step(end, at(1h + 2s));
  rounds.step(WorkersEnded{2, 1, WorkersEnded::Outcome::stopped, 0, ""}, at(1h + 3s));
  REQUIRE(rounds.epoch() == 2);
  // The others hear of it again, and it is nobody's fault that has not left in this one.
  const Fact victim = ended_as(0, Fact::End::failed, 75, Claim{Fault::lost, {1}});
  end.epoch = 2;
  end.facts.ranks.insert_or_assign(0, victim);
  Rounds other = std::move(rounds);
  CHECK(all_of<RanksLost>(other.step(WorkerLeft{2, 2, 1}, at(1h + 4s))).size() == 1);
  other.step(end, at(1h + 5s));
  const auto finish = all_of<Finish>(
      other.step(WorkersEnded{2, 2, WorkersEnded::Outcome::succeeded, 0, ""}, at(1h + 6s)));
  REQUIRE(finish.size() == 1);
  CHECK(finish[0].sentence == "rank 1 on host-b exited with 0 before the others");
  CHECK(finish[0].exit_code == 75);
}

}  // namespace dlaunch::rendezvous
