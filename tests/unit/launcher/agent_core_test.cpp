#include "launcher/job/core/agent_core.hpp"

#include "tests/support/transcript.hpp"

#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using life::AgentCore;

namespace {

using transcript::Words;
using Manner = StopOrder::Manner;

const std::map<std::string, Manner> manners = {
    {"report_first", Manner::report_first}, {"at_once", Manner::at_once}, {"kill", Manner::kill}};
const std::map<std::string, Outcome> outcomes = {{"succeeded", Outcome::succeeded},
                                                 {"failed", Outcome::failed},
                                                 {"stopped", Outcome::stopped},
                                                 {"front_lost", Outcome::front_lost}};

/// "2:7": epoch 7 of incarnation 2.
life::EpochName epoch_of(const std::string& word) {
  return {std::stoull(word), std::stoull(word.substr(word.find(':') + 1))};
}

life::Event parse_event(const Words& words) {
  const std::string& name = words.at(0);
  if (name == "admitted") return life::Admitted{epoch_of(words.at(1))};
  if (name == "placed") return life::Placed{epoch_of(words.at(1))};
  if (name == "unfit") return life::Unfit{epoch_of(words.at(1))};
  if (name == "ordered") return life::Ordered{std::stoull(words.at(1)), manners.at(words.at(2))};
  if (name == "over") return life::JobOver{std::stoi(words.at(1)), words.size() > 2};
  if (name == "signalled") {
    const int code = std::stoi(words.at(1));
    return life::Signalled{code - 128, code};
  }
  if (name == "expired") return life::Expired{std::stoi(words.at(1))};
  if (name == "front_gone") return life::FrontGone{};
  if (name == "nothing_left") return life::NothingLeft{};
  if (name == "drained") return life::Drained{};
  if (name == "gathered") return life::Gathered{};
  if (name == "ended") {
    return Ended{outcomes.at(words.at(1)), std::stoi(words.at(2)), {}, words.size() > 3};
  }
  throw std::invalid_argument("no event " + name);
}

struct Print {
  std::string operator()(const life::FindPlace&) { return "place"; }
  std::string operator()(const life::Begin&) { return "begin"; }
  std::string operator()(const life::Decline& e) { return "decline " + std::to_string(e.epoch); }
  std::string operator()(const life::Stop& e) {
    for (const auto& [name, manner] : manners) {
      if (manner == e.manner) return "stop " + name;
    }
    return "?";
  }
  std::string operator()(const life::Leave& e) {
    const char* whys[] = {"signal", "expired", "front_lost", "unkillable", "unfit"};
    return "leave " + std::to_string(e.exit_code) + " " + whys[static_cast<int>(e.why)];
  }
  std::string operator()(const life::Drain&) { return "drain"; }
  std::string operator()(const life::Gather& e) { return e.asks ? "gather asks" : "gather"; }
  std::string operator()(const life::Conclude&) { return "conclude"; }
  std::string operator()(const life::Report&) { return "report"; }
  std::string operator()(const life::Finish& e) { return "finish " + std::to_string(e.exit_code); }
  std::string operator()(const life::ExitNow&) { return "exit_now"; }
};

}  // namespace

TEST_CASE("agent transcripts") {
  std::optional<AgentCore> core;
  transcript::replay(
      "agent", 3, [&](const Words& words) { core.emplace(words.size() > 1); },
      [&](const Words& words, Clock::time_point) {
        return transcript::print<Print>(core.value().step(parse_event(words)));
      });
}

TEST_CASE("whatever comes in whatever order, nothing starts beside workers and it ends once") {
  std::mt19937 random(21);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  for (int story = 0; story < 20'000; ++story) {
    AgentCore core(below(2) == 0);
    bool working = false;
    int finished = 0, left = 0;
    for (int i = 0; i < 60; ++i) {
      const life::EpochName epoch{1, static_cast<std::uint64_t>(below(6))};
      const std::vector<life::Event> choices = {
          life::Admitted{epoch},
          below(8) == 0 ? life::Event(life::Unfit{epoch}) : life::Event(life::Placed{epoch}),
          life::Ordered{epoch.epoch, static_cast<Manner>(below(3))},
          life::NothingLeft{},
          life::Drained{},
          life::Gathered{},
          Ended{static_cast<Outcome>(below(3)), below(2), {}, below(8) == 0},
          below(6) == 0 ? life::Event(life::JobOver{below(3)}) : life::Event(life::Drained{}),
          below(6) == 0 ? life::Event(life::Signalled{15, 143}) : life::Event(life::Gathered{}),
          below(20) == 0 ? life::Event(life::FrontGone{}) : life::Event(life::NothingLeft{}),
          below(20) == 0 ? life::Event(life::Expired{75}) : life::Event(life::Gathered{}),
      };
      const auto& event = choices[static_cast<std::size_t>(below(11))];
      const bool decided = core.is_decided();
      for (const auto& effect : core.step(event)) {
        if (std::holds_alternative<life::Begin>(effect)) {
          CHECK_FALSE(working);
          CHECK_FALSE(decided);
          working = true;
        }
        if (std::holds_alternative<life::Leave>(effect)) ++left;
        if (std::holds_alternative<life::Finish>(effect)) {
          ++finished;
          CHECK((!working || std::holds_alternative<Ended>(event)));
        }
        if (std::holds_alternative<life::ExitNow>(effect)) {
          CHECK(finished == 1);
        } else if (finished == 1) {
          CHECK(std::holds_alternative<life::Finish>(effect));
        }
      }
      if (std::holds_alternative<Ended>(event)) working = false;
    }
    CHECK(finished <= 1);
    CHECK(left <= 1);
  }
}
