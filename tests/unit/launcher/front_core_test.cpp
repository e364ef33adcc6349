#include "launcher/job/core/front_core.hpp"

#include "runtime/base/phrases.hpp"
#include "tests/support/transcript.hpp"

#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>

#include <doctest/doctest.h>

namespace dlaunch::launcher::front {
namespace {

using transcript::at_ms;
using transcript::ms_of;
using transcript::Words;

FrontRules rules_of(int shutdown_ms) {
  return {{SIGTERM, SIGINT, SIGHUP}, std::chrono::milliseconds(shutdown_ms)};
}

Event parse_event(const Words& words) {
  const std::string& name = words.at(0);
  if (name == "signalled") {
    static const std::map<std::string, int> numbers = {
        {"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP}, {"USR1", SIGUSR1}};
    return Signalled{numbers.at(words.at(1))};
  }
  if (name == "looked") return Looked{words.size() > 1};
  if (name == "exited") return AgentEnded{{std::stoi(words.at(1)), 0, false}};
  if (name == "killed") return AgentEnded{{0, SIGKILL, false}};
  throw std::invalid_argument("no event " + name);
}

struct Print {
  static std::string ms(Clock::duration time) { return std::to_string(ms_of(at_ms(0) + time)); }
  std::string operator()(const HandOn& e) { return "hand_on " + signal_name(e.number); }
  std::string operator()(const Look& e) { return "look " + std::to_string(ms_of(e.at)); }
  std::string operator()(const Warn& e) {
    return "warn " + signal_name(e.signal) + " " + ms(e.left);
  }
  std::string operator()(const KillAgent& e) {
    return e.why == KillAgent::Why::third_signal ? "kill third_signal" : "kill stands_still";
  }
  std::string operator()(const Sweep& e) { return "sweep " + ms(e.timeout); }
  std::string operator()(const PutTerminalBack& e) {
    return e.failed ? "put_terminal_back failed" : "put_terminal_back";
  }
  std::string operator()(const ClearAway&) { return "clear_away"; }
  std::string operator()(const TellLost&) { return "tell_lost"; }
  std::string operator()(const Exit& e) { return "exit " + std::to_string(e.code); }
};

TEST_CASE("front transcripts") {
  std::optional<FrontCore> core;
  transcript::replay(
      "front", 1, [&](const Words&) { core.emplace(rules_of(1000)); },
      [&](const Words& words, Clock::time_point now) {
        return transcript::print<Print>(core.value().step(parse_event(words), now));
      });
}

TEST_CASE("a signal reaches the agent, or kills it; there is one exit code, and then nothing") {
  std::mt19937 random(22);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  for (int story = 0; story < 20'000; ++story) {
    FrontCore core(rules_of(below(60'000)));
    long now = 0;
    int exits = 0, kills = 0;
    for (int i = 0; i < 40; ++i) {
      now += below(3) == 0 ? below(40'000) : below(1200);
      const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
      const std::vector<Event> choices = {
          Signalled{numbers[below(4)]}, Looked{below(2) == 0}, Looked{below(2) == 0},
          below(12) == 0 ? Event(AgentEnded{{below(3), below(2) * SIGKILL, false}})
                         : Event(Looked{})};
      const Event& event = choices[static_cast<std::size_t>(below(4))];
      const int exits_before = exits, kills_before = kills;
      bool handed_on = false;
      for (const auto& effect : core.step(event, at_ms(now))) {
        CHECK(exits == exits_before);  // Nothing follows an exit, and nothing comes after it.
        CHECK(exits_before == 0);
        if (const auto* hand_on = std::get_if<HandOn>(&effect)) {
          handed_on = hand_on->number == std::get<Signalled>(event).number;
        }
        if (std::holds_alternative<KillAgent>(effect)) ++kills;
        if (std::holds_alternative<Exit>(effect)) ++exits;
      }
      if (std::holds_alternative<Signalled>(event)) CHECK((handed_on || kills == 1 || exits == 1));
      if (std::holds_alternative<AgentEnded>(event)) CHECK(exits == 1);
      CHECK(kills - kills_before <= 1);
    }
    CHECK(kills <= 1);
    CHECK(exits <= 1);
  }
}

}  // namespace
}  // namespace dlaunch::launcher::front
