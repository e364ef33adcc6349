// The load of a job of 100,000 ranks on its rendezvous: messages and bytes by phase
// (docs/scale.md), and that none of it is quadratic. DLAUNCH_TEST_FULL=1 prints the table.
#include "rendezvous/rounds/rounds.hpp"
#include "rendezvous/service/messages.hpp"
#include "tests/support/expect.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;
using Ended = WorkersEnded::Outcome;

template <class Message>
std::size_t size_of(const Message& message) {
  Bytes payload;
  message::encode(payload, message);
  return wire::header_bytes + payload.size();
}

struct Phase {
  std::size_t in = 0, in_bytes = 0;
  std::size_t out = 0, out_bytes = 0;
  std::size_t burst = 0;    ///< Most messages that one event caused.
  std::size_t biggest = 0;  ///< Bytes of the largest message.
  std::size_t events = 0;
  Clock::duration busy{};  ///< The core's time alone.
};

/// A job whose nodes all do the same, on a clock of its own.
class BigJob {
 public:
  BigJob(int nodes, int workers, int nodes_min, int max_restarts)
      : nodes_(nodes), workers_(workers) {
    rules_.nodes_min = nodes_min;
    rules_.nodes_max = nodes;
    rules_.max_restarts = max_restarts;
    rules_.join_timeout = std::chrono::minutes(10);
    rules_.last_call = std::chrono::seconds(30);
    alive_.assign(static_cast<std::size_t>(nodes), true);
  }

  Phase& begin(const std::string& name) {
    phases.emplace_back(name, Phase{});
    return phases.back().second;
  }

  void join_all(Clock::duration within) {
    for (int node = 0; node < nodes_; ++node) {
      pass(within / nodes_);
      NodeOffer offer;
      offer.id = "node" + std::to_string(node);
      offer.host = offer.id + ".cluster.example.org";
      offer.workers = workers_;
      offer.store_addresses = {"10.0." + std::to_string(node / 250) + "." +
                               std::to_string(node % 250) + ":29500"};
      ++here_;
      take(Join{session(node), offer, rules_, {}},
           size_of(message::Join{offer, rules_, {}, "0.1.0"}));
    }
  }
  void beat() {
    for (int node = 0; node < nodes_; ++node) {
      if (!alive_[static_cast<std::size_t>(node)]) continue;
      // It is answered by one of the service's.
      current().out += 1;
      current().out_bytes += size_of(message::Heartbeat{});
      take(Heartbeat{session(node)}, size_of(message::Heartbeat{}));
    }
  }
  void fail(int node) {
    const WorkerFailed e{session(node), rounds.epoch(), killed(node, false)};
    take(e, size_of(message::told(e, now_)));
  }
  Fact killed(int node, bool consequence) const {
    Fact fact;
    fact.rank = first_rank(node);
    fact.end = Fact::End::failed;
    if (consequence) {
      fact.exit_code = 75;
      fact.claim = Claim{Fault::lost, {0}};
    } else {
      fact.signal = 9;
    }
    return fact;
  }
  void end(int node, Ended outcome, bool consequence = false) {
    WorkersEnded e{session(node), rounds.epoch(), outcome, outcome == Ended::failed ? 137 : 0, {}};
    const Fact fact = killed(node, consequence);
    if (outcome == Ended::failed) e.facts.ranks.emplace(fact.rank, fact);
    take(e, size_of(message::told(e, now_)));
  }
  void end_all(Ended outcome, bool consequence = false) {
    for (int node = 0; node < nodes_; ++node) {
      if (alive_[static_cast<std::size_t>(node)]) end(node, outcome, consequence);
    }
  }
  /// These say nothing any more; the rest goes on until their leases have ended.
  template <class Lost>
  void lose(Lost lost) {
    for (int node = 0; node < nodes_; ++node) {
      if (!lost(node)) continue;
      alive_[static_cast<std::size_t>(node)] = false;
      --here_;
    }
    for (int second = 0; second < 7; ++second) {
      pass(1s);
      for (int node = 0; node < nodes_; ++node) {
        if (alive_[static_cast<std::size_t>(node)]) take(Heartbeat{session(node)}, 0);
      }
      take(Tick{}, 0);
    }
  }
  void pass(Clock::duration time) {
    const auto until = now_ + time;
    for (auto next = rounds.next_deadline(); next && *next <= until;
         next = rounds.next_deadline()) {
      now_ = std::max(now_, *next);
      take(Tick{}, 0);
    }
    now_ = until;
  }
  int first_rank(int node) const { return node * workers_; }

  Rounds rounds;
  std::vector<std::pair<std::string, Phase>> phases;

 private:
  static Session session(int node) { return static_cast<Session>(node) + 1; }
  Phase& current() { return phases.back().second; }

  void take(const Event& event, std::size_t bytes) {
    Phase& phase = current();
    ++phase.events;
    if (bytes > 0) {
      ++phase.in;
      phase.in_bytes += bytes;
    }
    const auto before = Clock::now();
    const Effects effects = rounds.step(event, now_);
    phase.busy += Clock::now() - before;
    const std::size_t sent = phase.out;
    for (const auto& effect : effects) std::visit([&](const auto& e) { count(e); }, effect);
    phase.burst = std::max(phase.burst, phase.out - sent);
  }
  void count(std::size_t messages, std::size_t bytes) {
    Phase& phase = current();
    phase.out += messages;
    phase.out_bytes += messages * bytes;
    phase.biggest = std::max(phase.biggest, bytes);
  }
  void count(const Admit& e) { count(1, size_of(message::Admitted{{false, e.admission}})); }
  void count(const Refuse& e) { count(1, size_of(message::Refused{e})); }
  void count(const Stop& e) { count(1, size_of(message::Stopped{e})); }
  void count(const RanksLost& e) { count(here_, size_of(message::RanksLost{e})); }
  void count(const Standing& e) { count(e.to == 0 ? here_ : 1, size_of(message::Standing{e})); }
  void count(const Finish& e) { count(here_, size_of(message::Finished{e})); }

  const int nodes_, workers_;
  JobRules rules_;
  Clock::time_point now_{1h};
  std::size_t here_ = 0;
  std::vector<bool> alive_;
};

double ms(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

void print(const BigJob& job) {
  std::printf("%-44s %9s %9s %9s %9s %9s %9s %9s\n", "phase", "in", "in KB", "out", "out KB",
              "burst", "max KB", "core ms");
  for (const auto& [name, p] : job.phases) {
    std::printf("%-44s %9zu %9.0f %9zu %9.0f %9zu %9.1f %9.1f\n", name.c_str(), p.in,
                static_cast<double>(p.in_bytes) / 1e3, p.out,
                static_cast<double>(p.out_bytes) / 1e3, p.burst,
                static_cast<double>(p.biggest) / 1e3, ms(p.busy));
  }
}

}  // namespace

TEST_CASE("a job of 100000 ranks: messages by phase, nothing quadratic") {
  constexpr int nodes = 12'500;
  constexpr std::size_t n = nodes;
  BigJob job(nodes, 8, nodes - 1, 2);

  job.begin("join, within 5 s, and the round closes");
  job.join_all(5s);
  REQUIRE(job.rounds.epoch() == 1);
  CHECK(job.rounds.status().world_size == 100'000);

  job.begin("one second of a running job");
  job.beat();

  job.begin("one worker fails: all are stopped");
  job.fail(7);
  job.begin("all end: the next round closes");
  job.end(7, Ended::failed);
  for (int node = 0; node < nodes; ++node) {
    if (node != 7) job.end(node, Ended::stopped);
  }
  CHECK(job.rounds.epoch() == 2);
  CHECK(job.rounds.status().attempt == 1);

  job.begin("every node reports a failure at once");
  for (int node = 0; node < nodes; ++node) job.fail(node);
  job.begin("all end: the next round closes again");
  job.end_all(Ended::failed, true);
  CHECK(job.rounds.epoch() == 3);

  job.begin("one node is lost: all are stopped");
  job.lose([](int node) { return node == 3; });
  CHECK(job.rounds.status().state == JobStatus::State::stopping);
  job.begin("all end: a round without it");
  job.end_all(Ended::stopped);
  CHECK(job.rounds.epoch() == 4);

  job.begin("every second node is lost");
  job.lose([](int node) { return node % 2 == 1 && node != 3; });
  CHECK(job.rounds.status().nodes.size() == n / 2);
  job.begin("all end: too few for a round");
  job.end_all(Ended::stopped);
  CHECK(job.rounds.status().state == JobStatus::State::gathering);
  job.begin("the end, when nobody came");
  job.pass(700s);
  CHECK(job.rounds.finished());
  CHECK(job.rounds.status().exit_code == 79);

  for (const auto& entry : job.phases) {
    CAPTURE(entry.first);
    const Phase& phase = entry.second;
    // A handful of sentences and orders for each node, never one for each pair of nodes.
    CHECK(phase.out <= 12 * n);
    CHECK(phase.in <= n);
  }
  const Phase& joined = job.phases.front().second;
  CHECK(joined.out >= 2 * n);  // Each hears that it is counted, and where its place is.
  CHECK(joined.biggest < wire::frame_bytes_max);
  if (testing::is_full()) print(job);
}

TEST_CASE("an event that comes before all nodes of a closed round are told comes after them") {
  constexpr int nodes = 50;
  JobRules rules;
  rules.nodes_min = rules.nodes_max = nodes;
  rules.join_timeout = 10min;
  const auto join_all = [&](Rounds& rounds) {
    Effects last;
    for (int i = 0; i < nodes; ++i) {
      NodeOffer offer;
      offer.id = "node" + std::to_string(i);
      last = rounds.begin_step(Join{static_cast<Session>(i + 1), offer, rules, std::nullopt}, {});
    }
    return last;
  };
  Rounds rounds;
  CHECK(join_all(rounds).empty());
  REQUIRE(rounds.unfinished());
  for (int seated = 0; seated < nodes; seated += 10) CHECK(rounds.go_on(10).empty());
  CHECK(rounds.go_on(10).size() == 10);
  REQUIRE(rounds.unfinished());
  const Effects rest = rounds.begin_step(EvictNode{nodes, "evicted"}, {});
  CHECK_FALSE(rounds.unfinished());
  REQUIRE(rest.size() > nodes - 10);
  for (int i = 0; i < nodes - 10; ++i) {
    const auto* admit = std::get_if<Admit>(&rest[static_cast<std::size_t>(i)]);
    REQUIRE(admit != nullptr);
    CHECK(admit->admission.node_rank == 10 + i);
    CHECK(admit->admission.crowded == false);
  }
  CHECK(std::holds_alternative<Standing>(rest[nodes - 10]));
  CHECK(std::get<Refuse>(rest[nodes - 9]).to == nodes);
  // Node rank 0's roster is whole although it was told first.
  Rounds other;
  join_all(other);
  const Effects all = other.go_on(nodes + 1);
  REQUIRE(all.size() == 1);
  CHECK(std::get<Admit>(all.front()).admission.roster->size() == nodes);
}

TEST_CASE("a job of more nodes: each costs no more messages than one of fewer") {
  double first = 0;
  for (const int nodes : {256, 2048, 4000, 12'500}) {
    CAPTURE(nodes);
    BigJob job(nodes, 8, nodes, 1);
    job.begin("join");
    job.join_all(5s);
    REQUIRE(job.rounds.epoch() == 1);
    job.begin("restart");
    job.fail(7);
    job.end(7, Ended::failed);
    for (int node = 0; node < nodes; ++node) {
      if (node != 7) job.end(node, Ended::stopped);
    }
    REQUIRE(job.rounds.epoch() == 2);
    const Phase &joined = job.phases[0].second, &restarted = job.phases[1].second;
    const double messages = static_cast<double>(joined.out + restarted.out) / nodes;
    if (first == 0) first = messages;
    CHECK(messages <= first * 1.05);
    if (testing::is_full()) {
      std::printf("%6d nodes, %6d ranks: joined in %6.1f ms, restarted in %6.1f ms\n", nodes,
                  8 * nodes, ms(joined.busy), ms(restarted.busy));
    }
  }
}

}  // namespace dlaunch::rendezvous
