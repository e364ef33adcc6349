// What an agent asks the others about calls that wait and ranks that stand still, and what it says.
#include "launcher/watch/core/stall_core.hpp"
#include "launcher/watch/core/stuck_core.hpp"
#include "tests/support/transcript.hpp"

#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using transcript::at_ms;
using transcript::ms_of;
using transcript::Words;

namespace {

/// The parts of "a/b/c".
Words parts_of(const std::string& text, char separator) {
  Words parts{""};
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// "9/5/1/2/4/over": communicator 9's call 5, in which rank 1 came first and 2 of its 4 ranks wait,
/// for longer than they may.
CallWait wait_of(const std::string& text) {
  const Words parts = parts_of(text, '/');
  CallWait wait;
  wait.communicator = std::stoull(parts.at(0));
  wait.sequence = std::stoull(parts.at(1));
  wait.rank = std::stoi(parts.at(2));
  wait.waiting = std::stoi(parts.at(3));
  wait.group_size = std::stoi(parts.at(4));
  wait.is_over = parts.size() > 5;
  wait.call = "barrier #" + parts.at(1);
  wait.waited = std::chrono::seconds(5);
  return wait;
}

/// "0=9/5/1/2/4/over,9/6/0/1/4": what node 0 lists; "1=": node 1 has no such call.
std::pair<int, Answer> listed(const std::string& word) {
  CallWaits waits;
  const auto equals = word.find('=');
  for (const auto& wait : parts_of(word.substr(equals + 1), ',')) {
    if (!wait.empty()) waits.waits.push_back(wait_of(wait));
  }
  return {std::stoi(word), waits};
}

/// "0=waits0,waits1,absent2": node 0's ranks 0 and 1 wait, 2 does not.
std::pair<int, Answer> described(const std::string& word) {
  StuckPart part;
  const auto equals = word.find('=');
  for (const auto& rank : parts_of(word.substr(equals + 1), ',')) {
    if (rank.starts_with("waits")) part.waiting.push_back(std::stoi(rank.substr(5)));
    if (rank.starts_with("absent")) part.absent.emplace_back(std::stoi(rank.substr(6)), "computes");
    part.known += rank.empty() ? 0 : 1;
  }
  return {std::stoi(word), part};
}

Answers answers_of(const Words& words, std::size_t from,
                   std::pair<int, Answer> (*read)(const std::string&)) {
  Answers answers;
  for (std::size_t i = from; i < words.size(); ++i) answers.insert(read(words[i]));
  return answers;
}

stuck::Event stuck_event(const Words& words) {
  const std::string& name = words.at(0);
  if (name == "begun") {
    stuck::Begun begun{
        std::stoull(words.at(1)), std::stoi(words.at(2)), std::stoi(words.at(3)), {}};
    for (std::size_t i = 4; i < words.size(); ++i) {
      const int workers = begun.world_size / begun.nodes;
      begun.roster.push_back({words[i], words[i], static_cast<int>(i - 4) * workers, workers, {}});
    }
    return begun;
  }
  if (name == "lost") {
    rendezvous::RanksLost lost;
    lost.first_rank = std::stoi(words.at(1));
    lost.count = std::stoi(words.at(2));
    lost.how = Departure::because("node b is lost");
    return lost;
  }
  if (name == "noticed") return stuck::Noticed{};
  if (name == "alerted") return stuck::Alerted{};
  if (name == "tell_again_due") return stuck::TellAgainDue{};
  if (name == "look_due") return stuck::LookDue{};
  if (name == "heard") return stuck::Heard{std::stoull(words.at(1)), true};
  if (name == "unheard") return stuck::Heard{std::stoull(words.at(1)), false};
  if (name == "listed")
    return stuck::Listed{std::stoull(words.at(1)), answers_of(words, 2, listed)};
  if (name == "described") {
    return stuck::Described{std::stoull(words.at(1)), wait_of(words.at(2)),
                            answers_of(words, 3, described)};
  }
  throw std::invalid_argument("no event " + name);
}

struct PrintStuck {
  std::string operator()(const stuck::Rest&) { return "rest"; }
  std::string operator()(const stuck::TellNode0& e) {
    return "tell_node_0 " + std::to_string(e.epoch);
  }
  std::string operator()(const stuck::List& e) { return "list " + std::to_string(e.epoch); }
  std::string operator()(const stuck::Describe& e) {
    return "describe " + std::to_string(e.epoch) + " " + e.wait.call;
  }
  std::string operator()(const stuck::TellAgain& e) {
    return "tell_again " + std::to_string(ms_of(e.at));
  }
  std::string operator()(const stuck::LookLater& e) {
    return "look " + std::to_string(ms_of(e.at));
  }
  std::string operator()(const stuck::Say& e) { return "say " + e.sentence; }
};

stall::Event stall_event(const Words& words) {
  const std::string& name = words.at(0);
  const auto ms = [](const std::string& word) {
    return std::chrono::milliseconds(std::stol(word));
  };
  if (name == "begun") {
    return stall::Begun{std::stoull(words.at(1)), std::stoi(words.at(2)), std::stoi(words.at(3))};
  }
  if (name == "started") return stall::Started{};
  if (name == "stopped") return stall::Stopped{};
  if (name == "declared") return stall::Declared{};
  if (name == "suspended") return stall::Suspended{true};
  if (name == "resumed") return stall::Suspended{false};
  if (name == "ask_due") return stall::AskDue{};
  if (name == "looked") {  // The calls that rank 0 has begun and ended.
    return stall::Looked{{{.rank = 0, .calls = std::stoull(words.at(1))}}};
  }
  if (name == "told") {  // "1=2500": node 1's ranks were last seen to go on 2.5 s ago.
    stall::Told told{std::stoull(words.at(1)), {}};
    for (std::size_t i = 2; i < words.size(); ++i) {
      const int node = std::stoi(words[i]);
      told.job[node] = {.unseen = ms(words[i].substr(words[i].find('=') + 1)),
                        .doing = {{node, "in no call"}}};
    }
    return told;
  }
  throw std::invalid_argument("no event " + name);
}

struct PrintStall {
  std::string operator()(const stall::Rest&) { return "rest"; }
  std::string operator()(const stall::LookLater& e) {
    return "look " + std::to_string(ms_of(e.at));
  }
  std::string operator()(const stall::AskLater& e) {
    return "ask_at " + std::to_string(ms_of(e.at));
  }
  std::string operator()(const stall::Ask& e) { return "ask " + std::to_string(e.epoch); }
  std::string operator()(const stall::End& e) { return "end " + e.sentence; }
};

}  // namespace

TEST_CASE("stuck transcripts") {
  std::optional<stuck::StuckCore> core;
  transcript::replay(
      "stuck", 2, [&](const Words&) { core.emplace(); },
      [&](const Words& words, Clock::time_point now) -> std::string {
        if (words.at(0) == "stuck?") return core.value().stuck().empty() ? "no" : core->stuck();
        return transcript::print<PrintStuck>(core.value().step(stuck_event(words), now));
      });
}

TEST_CASE("stall transcripts") {
  std::optional<stall::StallCore> core;
  transcript::replay(
      "stall", 1,
      [&](const Words& config) {
        core.emplace(std::chrono::milliseconds(std::stol(config.at(1))));
      },
      [&](const Words& words, Clock::time_point now) -> std::string {
        if (words.at(0) == "progress?") {
          return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(
                                    core.value().progress(now).unseen)
                                    .count());
        }
        return transcript::print<PrintStall>(core.value().step(stall_event(words), now));
      });
}

TEST_CASE(
    "however often nodes tell, all are asked at most once a second, and each call is told once") {
  std::mt19937 random(5);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  for (int story = 0; story < 500; ++story) {
    stuck::StuckCore core;
    Clock::time_point now = at_ms(0);
    core.step(stuck::Begun{1, 4, 2, {}}, now);
    auto look_at = Clock::time_point::max();
    auto last_list = at_ms(-1000);
    std::optional<CallWait> reporting;
    bool listing = false;
    int said = 0;
    const CallWait call = wait_of("9/5/1/2/4/over");
    for (int i = 0; i < 300; ++i) {
      now += std::chrono::milliseconds(below(200));
      stuck::Event event = stuck::Alerted{};
      if (now >= look_at) {
        event = stuck::LookDue{};
        look_at = Clock::time_point::max();
      } else if (std::exchange(listing, false)) {
        event = stuck::Listed{1, {{0, CallWaits{{call}}}, {1, CallWaits{}}}};
      } else if (reporting) {
        event = stuck::Described{1,
                                 *std::exchange(reporting, std::nullopt),
                                 {{0, StuckPart{{0, 1}, {}, 2}}, {1, StuckPart{{}, {}, 2}}}};
      } else if (below(3) == 0) {
        event = stuck::Noticed{};
      }
      for (const auto& effect : core.step(event, now)) {
        if (const auto* look = std::get_if<stuck::LookLater>(&effect)) look_at = look->at;
        if (const auto* found = std::get_if<stuck::Describe>(&effect)) reporting = found->wait;
        if (std::holds_alternative<stuck::Say>(effect)) ++said;
        if (!std::holds_alternative<stuck::List>(effect)) continue;
        CHECK(now - last_list >= std::chrono::seconds(1));
        last_list = now;
        listing = true;
      }
    }
    CHECK(said == 1);
  }
}
