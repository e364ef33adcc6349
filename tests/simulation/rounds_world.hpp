#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

/// Nodes, a rendezvous and the network between them, in one thread, on a virtual clock, from a
/// seed. The rendezvous is the real Rounds in a shell as the service's; the nodes behave as agents
/// do. Connections keep their order and break, with whatever is under way; messages that change
/// nothing when repeated are repeated, late. Nodes are killed, cut off, stopped and started again,
/// and so is the rendezvous, which keeps its last epoch, or nothing.
namespace dlaunch::rendezvous::simulation {

struct Outcome {
  std::string violation;  ///< The rule that was violated; empty: none.
  int exit_code = -1;
  std::uint64_t epochs = 0;
  std::uint64_t events = 0;
  int faults = 0;
  int losses = 0;
};

struct EpochOf {
  std::uint64_t incarnation = 0;
  std::uint64_t number = 0;
  auto operator<=>(const EpochOf&) const = default;
};

struct Story {
  bool spares = false;  ///< The job has some, and as many nodes more.
  /// Admissions are said in the turns of their nodes, as the service has it: other events come in
  /// between, and what is not said yet is lost with its connection or the rendezvous.
  bool late_admissions = false;
};

class World {
 public:
  World(unsigned seed, bool trace, Story story = {});
  Outcome run();

 private:
  using Time = Clock::time_point;
  using Action = std::function<void()>;

  struct Agent {
    int number = 0;
    NodeOffer offer;
    Session session = 0;  ///< 0: not running.
    double drift = 1;     ///< The drift of its timers.
    Time stopped_until{};
    Time cut_in_until{}, cut_out_until{};  ///< Nothing gets in, or out.
    int connection = 0;
    Time heard{};
    int tries = 0;
    std::optional<Holding> holding;
    std::optional<EpochOf> working;  ///< Its workers'.
    bool stopping = false;
    bool evicted = false;
    bool peers_lost = false;
    std::optional<WorkerFailed> failure;
    std::optional<WorkersEnded> end;
    bool left = false;
    std::optional<int> exit_code;
  };
  /// One direction of a connection, in order.
  struct Channel {
    std::deque<Action> under_way;
    bool moving = false;
  };
  struct Connection {
    int agent = 0;
    Session session = 0;
    bool open_here = true;   ///< For the agent.
    bool open_there = true;  ///< For the rendezvous.
    bool joined = false;
    Action late;  ///< Says what is still to be said; null: nothing is.
    Channel to_agent, to_rendezvous;
  };

  // ---- Time and chance ----
  unsigned below(unsigned n) { return static_cast<unsigned>(random_()) % n; }
  bool chance(unsigned percent) { return below(100) < percent; }
  Clock::duration between(int ms_min, int ms_max);
  void after(Clock::duration delay, Action action);
  void after_for(Agent& agent, Clock::duration delay, Action action);
  void when_awake(Agent& agent, Session session, const Action& action);
  void say(const std::string& text);
  void violated(const std::string& what);

  // ---- Network ----
  void connect(Agent& agent);
  void connect_later(Agent& agent);
  void send(int connection, bool to_agent, Action action);
  void move(int connection, bool to_agent);
  void break_connection(int connection, bool keep_under_way);
  void tell(Agent& agent, Event event);
  bool rendezvous_reachable(const Agent& agent) const;

  // ---- Agents ----
  void start(Agent& agent);
  void beat(Agent& agent);
  void join(Agent& agent);
  void begin_work(Agent& agent);
  Fact fact_of(const Agent& agent, int code, bool consequence) const;
  void end_work(Agent& agent, WorkersEnded::Outcome outcome, bool consequence);
  void fail(Agent& agent);
  void take(Agent& agent, const Admit& e);
  void take(Agent& agent, const Refuse& e);
  void take(Agent& agent, const Stop& e);
  void take(Agent& agent, const RanksLost& e);
  void take(Agent&, const Standing&) {}
  void take(Agent& agent, const Finish& e);

  // ---- The rendezvous ----
  void arrive(int connection, Event event);
  void step(const Event& event);
  void check(const Effects& effects);
  void check_closed(std::vector<Admission> admissions);
  void carry_out(const Effect& effect);
  void say_late(int connection);
  void schedule_tick();

  // ---- Faults ----
  void fault();
  void fault_of(Agent& agent);
  void kill(Agent& agent, bool connection_too);
  void restart_rendezvous();
  void end_faults();
  std::string verdict() const;

  struct Later {
    Time when;
    std::uint64_t order;
    Action action;
    bool operator>(const Later& o) const {
      return when != o.when ? when > o.when : order > o.order;
    }
  };
  std::mt19937 random_;
  const bool trace_;
  const Story story_;
  Time now_{std::chrono::hours(1)};
  std::uint64_t order_ = 0;
  std::priority_queue<Later, std::vector<Later>, std::greater<>> queue_;

  JobRules rules_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<int, Connection> connections_;
  int last_connection_ = 0;
  Session last_session_ = 0;
  bool calm_ = false;  ///< No more faults.
  unsigned failing_percent_ = 0;
  int fault_interval_ms_ = 0;

  Rounds rounds_{0, {1, 1}};
  std::uint64_t last_incarnation_ = 1;
  std::map<Session, int> current_;  ///< Its connection, as the rendezvous knows it.
  std::set<Session> joined_;
  bool down_ = false;
  Time rendezvous_stopped_until_{};
  Time tick_at_ = Time::max();
  std::optional<Finish> finish_;
  std::set<Session> gone_;                            ///< They have left, as the rendezvous knows.
  std::map<EpochOf, std::map<int, Admission>> maps_;  ///< By node rank.
  std::map<std::uint64_t, std::uint64_t> epochs_;     ///< The last of each incarnation.
  std::set<EpochOf> broken_;  ///< They have lost workers: the others wait for them.
  Outcome outcome_;
};

}  // namespace dlaunch::rendezvous::simulation
