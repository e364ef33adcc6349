// Runs the transcripts in tests/scenario/supervisor, and random histories for what must hold
// always.
#include "launcher/job/core/supervisor.hpp"

#include "runtime/base/departure.hpp"
#include "runtime/base/phrases.hpp"
#include "tests/support/transcript.hpp"
#include "tests/support/verdict_kind.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>

#include <doctest/doctest.h>

namespace dlaunch::launcher {
namespace {

using transcript::at_ms;
using transcript::ms_of;
using transcript::Words;

int signal_number(const std::string& name) {
  for (int n = 1; n < 32; ++n) {
    if (signal_name(n) == name) return n;
  }
  throw std::invalid_argument("no signal " + name);
}

Fault fault_named(const std::string& name) {
  static const std::map<std::string, Fault> names = {{"own", Fault::own},
                                                     {"lost", Fault::lost},
                                                     {"absent", Fault::absent},
                                                     {"disagreed", Fault::disagreed},
                                                     {"arguments", Fault::arguments},
                                                     {"gave_up", Fault::gave_up}};
  return names.at(name);
}

/// "exited 1 3", "exited 1 SIGKILL", "reported 2 lost 1 9": one event as a transcript says it.
Event parse_event(const Words& words, Clock::time_point now) {
  const std::string& name = words.at(0);
  const auto number = [&](std::size_t i) { return std::stoi(words.at(i)); };
  if (name == "start") return Start{words.size() > 1 ? number(1) : 0};
  if (name == "spawned") return Spawned{};
  if (name == "spawn_failed") return SpawnFailed{number(1)};
  if (name == "exited") {
    const std::string& how = words.at(2);
    return how.starts_with("SIG") ? Exited{number(1), {0, signal_number(how), false}}
                                  : Exited{number(1), {number(2), 0, false}};
  }
  if (name == "joined") return Joined{number(1)};
  if (name == "ready") return Ready{number(1)};
  if (name == "reported") {
    Reported reported{number(1), {.fault = fault_named(words.at(2))}};
    for (std::size_t i = 3; i < words.size(); ++i) reported.claim.ranks.push_back(number(i));
    return reported;
  }
  if (name == "gave_up") return GaveUp{number(1), number(2)};
  if (name == "traceback") return SaidTraceback{number(1), now};
  if (name == "error_file") return WroteErrorFile{number(1), at_ms(number(2))};
  if (name == "left_elsewhere") return LeftElsewhere{};
  if (name == "stalled") return Stalled{};
  if (name == "stop") return StopSignal{signal_number(words.at(1))};
  if (name == "expired") return Expired{};
  if (name == "other") return OtherSignal{signal_number(words.at(1))};
  if (name == "order") {
    using Manner = StopOrder::Manner;
    if (words.at(1) == "kill") return StopOrder{Manner::kill};
    return StopOrder{words.at(1) == "at_once" ? Manner::at_once : Manner::report_first};
  }
  if (name == "tick") return Tick{};
  if (name == "all_gone") return AllGone{};
  if (name == "front_lost") return FrontLost{};
  throw std::invalid_argument("no event " + name);
}

std::string outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::succeeded:
      return "succeeded";
    case Outcome::failed:
      return "failed";
    case Outcome::stopped:
      return "stopped";
    case Outcome::spawn_failed:
      return "spawn_failed";
    case Outcome::front_lost:
      return "front_lost";
  }
  return "?";
}

struct Print {
  std::string operator()(const Spawn& e) { return "spawn " + std::to_string(e.attempt); }
  std::string operator()(const PublishLoss& e) {
    return (e.fact.failed() ? "publish failed " : "publish ") + std::to_string(e.rank) + " '" +
           text_of(Departure::of(e.fact)) + "'";
  }
  std::string operator()(const TellStragglers& e) {
    std::string text = e.over ? "stragglers over" : "stragglers";
    for (const int rank : e.running) text += " " + std::to_string(rank);
    return text + " since " +
           std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(e.since).count());
  }
  std::string operator()(const TellUnready& e) {
    std::string text = "unready";
    for (const int rank : e.ranks) text += " " + std::to_string(rank);
    return text;
  }
  std::string operator()(const ArmTimer& e) { return "timer " + std::to_string(ms_of(e.at)); }
  std::string operator()(const SignalAll& e) { return "signal " + signal_name(e.number); }
  std::string operator()(const HandOn& e) { return "hand_on " + signal_name(e.number); }
  std::string operator()(const KillAll&) { return "kill"; }
  std::string operator()(const Ended& e) {
    return "ended " + outcome_name(e.outcome) + " code=" + std::to_string(e.exit_code) +
           (e.verdict ? " root=" + roots(*e.verdict) : "") + (e.unkillable ? " unkillable" : "");
  }
  static std::string roots(const Verdict& verdict) {
    std::string text;
    for (const int rank : verdict.ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
    if (verdict.kind == Verdict::Kind::failed) return text;
    return text + "/" + testing::name_of(verdict.kind);
  }
};

SupervisorRules parse_rules(const Words& words) {
  SupervisorRules rules;
  rules.shutdown_timeout = std::chrono::seconds(30);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto eq = words[i].find('=');
    const std::string key = words[i].substr(0, eq);
    const std::string value = words[i].substr(eq + 1);
    if (key == "on_failure") {
      rules.continue_on_failure = value == "continue";
      continue;
    }
    const int number = std::stoi(value);
    if (key == "workers")
      rules.workers = number;
    else if (key == "notice")
      rules.straggler_notice = std::chrono::milliseconds(number);
    else if (key == "straggler")
      rules.straggler_timeout = std::chrono::milliseconds(number);
    else if (key == "ready")
      rules.ready_timeout = std::chrono::milliseconds(number);
    else if (key == "elsewhere")
      rules.peers_elsewhere = number != 0;
    else if (key == "grace_for_all")
      rules.failure_grace_given = number != 0;
    else if (key == "grace")
      rules.failure_grace = std::chrono::milliseconds(number);
    else if (key == "shutdown")
      rules.shutdown_timeout = std::chrono::milliseconds(number);
    else if (key == "kill")
      rules.kill_timeout = std::chrono::milliseconds(number);
    else
      throw std::invalid_argument("no rule " + key);
  }
  return rules;
}

}  // namespace

TEST_CASE("supervisor transcripts") {
  std::optional<Supervisor> supervisor;
  transcript::replay(
      "supervisor", 4, [&](const Words& words) { supervisor.emplace(parse_rules(words)); },
      [&](const Words& words, Clock::time_point now) {
        return transcript::print<Print>(supervisor.value().step(parse_event(words, now), now));
      });
}

TEST_CASE("every state answers every event, and an attempt ends once") {
  using State = Supervisor::State;
  std::mt19937 random(20);
  std::map<std::pair<State, std::size_t>, int> seen;
  for (int history = 0; history < 3000; ++history) {
    SupervisorRules rules;
    rules.workers = 1 + static_cast<int>(random() % 4);
    rules.peers_elsewhere = random() % 2 == 0;
    rules.shutdown_timeout = std::chrono::seconds(30);
    if (random() % 4 == 0) rules.ready_timeout = std::chrono::seconds(5);
    rules.continue_on_failure = random() % 3 == 0;
    Supervisor supervisor(rules);
    int spawned = 0;
    int ended = 0;
    const auto take = [&](const Event& event, long now) {
      for (const auto& effect : supervisor.step(event, at_ms(now))) {
        if (std::holds_alternative<Spawn>(effect)) ++spawned;
        if (std::holds_alternative<Ended>(effect)) ++ended;
      }
      CHECK(ended == spawned - (supervisor.state() == State::idle ? 0 : 1));
    };
    long now = 0;
    for (int i = 0; i < 80; ++i) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(rules.workers));
      const std::vector<Event> choices = {
          Start{i},
          Spawned{},
          SpawnFailed{127},
          Exited{rank, {static_cast<int>(random() % 2), 0, false}},
          Exited{rank, {0, SIGKILL, false}},
          Joined{rank},
          Ready{rank},
          Reported{rank, {static_cast<Fault>(random() % 6), {rank - 1}}},
          LeftElsewhere{},
          StopSignal{SIGTERM},
          OtherSignal{SIGUSR1},
          StopOrder{static_cast<StopOrder::Manner>(random() % 3)},
          Tick{},
          AllGone{},
          FrontLost{},
          SaidTraceback{rank, at_ms(now)},
          WroteErrorFile{rank, at_ms(now)},
          GaveUp{rank, 1 + static_cast<int>(random() % 3)},
          Stalled{},
          Expired{}};
      // Rare events rarely, so that histories go deep.
      std::size_t pick = random() % choices.size();
      const bool rare = pick == 2 || pick == 9 || pick == 11 || pick == 14 || pick >= 18;
      if (rare && random() % 8 != 0) pick = 3;
      now += static_cast<long>(random() % 2000);
      ++seen[{supervisor.state(), choices[pick].index()}];
      take(choices[pick], now);
    }
    // After anything, exits and time alone bring it to an end.
    for (int i = 0; i < 40 && supervisor.state() != State::idle; ++i) {
      take(Spawned{}, now);
      for (int r = 0; r < rules.workers; ++r) take(Exited{r, {0, SIGKILL, false}}, now);
      take(AllGone{}, now);
      now += 60000;
      take(Tick{}, now);
    }
    CHECK(supervisor.state() == State::idle);
  }
  for (int state = 0; state <= static_cast<int>(State::killing); ++state) {
    for (std::size_t event = 0; event < std::variant_size_v<Event>; ++event) {
      CHECK_MESSAGE((seen.contains({static_cast<State>(state), event})),
                    "state " << state << " never met event " << event);
    }
  }
}

TEST_CASE("how an end is described") {
  CHECK(describe({3, 0, false}) == "exited with 3");
  CHECK(describe({0, SIGKILL, false}) == "killed by SIGKILL");
  CHECK(describe({0, SIGSEGV, true}) == "killed by SIGSEGV (core dumped)");
  CHECK(signal_name(SIGRTMIN + 3) == "SIGRTMIN+3");
  CHECK(ExitStatus{0, SIGTERM, false}.shell_code() == 143);
}

}  // namespace dlaunch::launcher
