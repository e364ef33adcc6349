#include "tests/support/rounds_story.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <doctest/doctest.h>

namespace dlaunch::rendezvous {
namespace {

using Words = std::vector<std::string>;

Clock::duration seconds(const std::string& text) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::stod(text)));
}

/// Words are separated by spaces, and 'one that has some' is quoted.
Words split(const std::string& line) {
  Words words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(' ', at)) != std::string::npos) {
    const bool quoted = line[at] == '\'';
    const std::size_t from = quoted ? at + 1 : at;
    const std::size_t end = std::min(line.find(quoted ? '\'' : ' ', from), line.size());
    words.push_back(line.substr(from, end - from));
    at = quoted ? end + 1 : end;
  }
  return words;
}

std::pair<std::string, std::string> key_value(const std::string& word) {
  const auto eq = word.find('=');
  if (eq == std::string::npos) return {word, ""};
  return {word.substr(0, eq), word.substr(eq + 1)};
}

void set_rule(JobRules& rules, const std::string& word) {
  const auto [key, value] = key_value(word);
  if (key == "nodes") {
    const auto dots = value.find("..");
    rules.nodes_min = std::stoi(value);
    rules.nodes_max =
        dots == std::string::npos ? rules.nodes_min : std::stoi(value.substr(dots + 2));
  } else if (key == "spares") {
    rules.spares = std::stoi(value);
  } else if (key == "max_restarts") {
    rules.max_restarts = std::stoi(value);
  } else if (key == "restart_window") {
    rules.restart_window = seconds(value);
  } else if (key == "restart_backoff") {
    const auto colon = value.find(':');
    rules.restart_backoff = {seconds(value.substr(0, colon)), seconds(value.substr(colon + 1))};
  } else if (key == "on_failure") {
    rules.continue_on_failure = value == "continue";
  } else if (key == "join_timeout") {
    rules.join_timeout = seconds(value);
  } else if (key == "last_call") {
    rules.last_call = seconds(value);
  } else if (key == "lease") {
    rules.liveness.lease = seconds(value);
  } else if (key == "grace") {
    rules.liveness.reconnect_grace = seconds(value);
  } else {
    throw std::invalid_argument("no rule " + key);
  }
}

/// "7:1/4@8/32": epoch:rank/nodes@first/world, of incarnation 1; "7:1/4@8/32#3": of incarnation 3.
Holding parse_holding(const std::string& text) {
  Holding held;
  held.incarnation = 1;
  if (const auto hash = text.find('#'); hash != std::string::npos) {
    held.incarnation = std::stoull(text.substr(hash + 1));
  }
  char colon = 0, slash = 0, at = 0, slash2 = 0;
  std::istringstream in(text);
  in >> held.epoch >> colon >> held.node_rank >> slash >> held.node_count >> at >>
      held.first_rank >> slash2 >> held.world_size;
  if (!in) throw std::invalid_argument("no holding: " + text);
  return held;
}

/// "called a 1 rank=0 count=2 digest=7 heard '5:70:broadcast #5'": one communicator, and of its
/// last calls number, digest and text.
CallsMade calls_of(Session session, const Words& words) {
  CommunicatorCalls calls;
  calls.communicator = 1;
  calls.name = "world";
  for (std::size_t i = 3; i < words.size(); ++i) {
    const auto [key, value] = key_value(words[i]);
    if (key == "communicator") {
      calls.communicator = std::stoull(value);
    } else if (key == "rank") {
      calls.rank = std::stoi(value);
    } else if (key == "count") {
      calls.begun = calls.count = std::stoull(value);
    } else if (key == "digest") {
      calls.digest = std::stoull(value);
    } else if (key == "heard") {
      calls.heard = true;
    } else {
      char colon = 0;
      auto& call = calls.last.emplace_back();
      std::istringstream in(words[i]);
      in >> call.sequence >> colon >> call.digest >> colon;
      std::getline(in, call.text);
    }
  }
  return {session, std::stoull(words.at(2)), {calls}};
}

std::string range(int first, int count) {
  return std::to_string(first) + (count > 1 ? "-" + std::to_string(first + count - 1) : "");
}

std::string cause_name(Stop::Cause cause) {
  switch (cause) {
    case Stop::Cause::failure:
      return "failure";
    case Stop::Cause::membership:
      return "membership";
    case Stop::Cause::evicted:
      return "evicted";
  }
  return "?";
}

struct Print {
  const std::map<Session, std::string>& names;
  std::string name(Session session) const {
    const auto found = names.find(session);
    return found == names.end() ? std::to_string(session) : found->second;
  }
  std::string operator()(const Admit& e) const {
    const Admission& a = e.admission;
    return "admit " + name(e.to) + " epoch=" + std::to_string(a.epoch) +
           (a.attempt > 0 ? " attempt=" + std::to_string(a.attempt) : "") +
           " node=" + std::to_string(a.node_rank) + "/" + std::to_string(a.node_count) +
           " ranks=" + range(a.first_rank, a.local_size) + "/" + std::to_string(a.world_size) +
           (a.crowded ? " crowded" : "") + memory(a.memory);
  }
  /// " memory=0-1,4-5@b": whose ranks it is for, and where it is lent.
  static std::string memory(const CommonMemory& common) {
    std::string text;
    for (const auto& part : common.parts) {
      text += (text.empty() ? " memory=" : ",") + range(part.first_rank, part.workers);
    }
    return text + common.lender;
  }
  std::string operator()(const Refuse& e) const {
    return "refuse " + name(e.to) + " " + std::to_string(e.exit_code) + " '" + e.reason + "'";
  }
  std::string operator()(const Stop& e) const {
    return "stop " + name(e.to) + " epoch=" + std::to_string(e.epoch) + " " + cause_name(e.cause) +
           (e.cause == Stop::Cause::evicted ? "" : " '" + e.reason + "'");
  }
  std::string operator()(const RanksLost& e) const {
    return "lost epoch=" + std::to_string(e.epoch) + " ranks=" + range(e.first_rank, e.count) +
           (e.except != 0 ? " except=" + name(e.except) : "") +
           (e.to != 0 ? " to=" + name(e.to) : "") + " '" + text_of(e.how) + "'";
  }
  std::string operator()(const Standing& e) const {
    return "say " + (e.to == 0 ? "all" : name(e.to)) + " '" + e.sentence + "'";
  }
  std::string operator()(const Finish& e) const {
    return "finish " + std::to_string(e.exit_code) +
           (e.verdict ? " root=" + roots(*e.verdict) : "") + " '" + e.sentence + "'";
  }
  static std::string roots(const Verdict& verdict) {
    std::string text;
    for (const int rank : verdict.ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
    return text;
  }
};

}  // namespace

std::string print(const Effect& effect, const std::map<Session, std::string>& names) {
  return std::visit(Print{names}, effect);
}

RoundsStory::RoundsStory(const std::string& config) {
  rules_.join_timeout = std::chrono::minutes(10);
  rules_.last_call = std::chrono::seconds(30);
  std::uint64_t last_epoch = 0;
  Incarnation incarnation{1, 1};
  std::optional<Hosting> hosting;
  const Words words = split(config);
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with("last_epoch=")) {
      last_epoch = std::stoull(words[i].substr(11));
    } else if (words[i].starts_with("incarnation=")) {
      incarnation.number = std::stoull(words[i].substr(12));
    } else if (words[i].starts_with("first_here=")) {
      incarnation.first_here = std::stoull(words[i].substr(11));
    } else if (words[i].starts_with("return_by=")) {
      incarnation.return_by = Clock::time_point(seconds(words[i].substr(10)));
    } else if (words[i] == "hosted") {
      hosting.emplace();
    } else if (words[i].starts_with("taken_over=")) {
      hosting = Hosting{Takeover{parse_holding(words[i].substr(11)),
                                 "b",
                                 {},
                                 "node a is lost: gone",
                                 std::chrono::seconds(12)}};
      last_epoch = hosting->taken_over->place.epoch;
      incarnation = {2, 2, Clock::time_point::min()};
    } else {
      set_rule(rules_, words[i]);
    }
  }
  if (hosting && hosting->taken_over) hosting->taken_over->rules = rules_;
  rounds_ = Rounds(last_epoch, incarnation, "j", hosting);
}

Session RoundsStory::session_of(const std::string& name) {
  Speaker& speaker = speakers_[name];
  if (speaker.session == 0) {
    speaker.session = speakers_.size();
    names_[speaker.session] = name;
    speaker.offer.id = name;
    speaker.offer.host = "host-" + name;
  }
  return speaker.session;
}

void RoundsStory::take(const Event& event, std::vector<std::string>& into) {
  Effects effects = rounds_.begin_step(event, now_);
  while (rounds_.unfinished()) std::ranges::move(rounds_.go_on(1), std::back_inserter(effects));
  for (const Effect& effect : effects) into.push_back(print(effect, names_));
}

void RoundsStory::pass_until(Clock::time_point until, std::vector<std::string>& at_the_end) {
  using namespace std::chrono_literals;
  while (true) {
    auto next = now_ + 1s;
    const auto deadline = rounds_.next_deadline();
    if (deadline) next = std::min(next, std::max(*deadline, now_));
    if (next > until) break;
    now_ = next;
    std::vector<std::string> happened;
    for (const auto& [name, speaker] : speakers_) {
      if (speaker.speaks) take(Heartbeat{speaker.session}, happened);
    }
    take(Tick{held_since_}, happened);
    if (now_ == until) {
      at_the_end.insert(at_the_end.end(), happened.begin(), happened.end());
      // A deadline that does not go away would hold the shell up for ever.
      const auto again = rounds_.next_deadline();
      if (again && *again <= now_) throw std::logic_error("the deadline is in the past");
      break;
    }
    for (const auto& line : happened) {
      surprise += "\n  at t=" +
                  std::to_string(std::chrono::duration<double>(now_.time_since_epoch()).count()) +
                  ": " + line;
    }
    if (deadline && rounds_.next_deadline() && *rounds_.next_deadline() <= now_) {
      throw std::logic_error("the deadline is in the past");
    }
  }
  now_ = until;
}

std::vector<std::string> RoundsStory::line(const std::string& text) {
  const Words words = split(text);
  if (words.empty() || !words[0].starts_with("t=")) throw std::invalid_argument("no time: " + text);
  const Clock::time_point when(seconds(words[0].substr(2)));
  surprise.clear();
  std::vector<std::string> effects;
  // The process that holds the rounds was stopped: nothing was heard, and no tick came.
  if (words.size() == 2 && words[1] == "slept") {
    now_ = when;
    take(Tick{}, effects);
    return effects;
  }
  // "t=3 mute" until "t=15 heard": nothing that is said leaves.
  if (words.size() == 2 && (words[1] == "mute" || words[1] == "heard")) {
    pass_until(when, effects);
    held_since_.reset();
    if (words[1] == "mute") held_since_ = when;
    return effects;
  }
  pass_until(when, effects);
  if (words.size() == 1) return effects;
  for (const auto& early : effects) surprise += "\n  just before: " + early;
  effects.clear();
  const std::string& verb = words[1];
  if (verb == "silence" || verb == "speak") {
    Speaker& speaker = speakers_.at(words.at(2));
    speaker.speaks = verb == "speak";
    if (speaker.speaks) take(Heartbeat{speaker.session}, effects);
  } else {
    take(event_of(Words(words.begin() + 1, words.end())), effects);
  }
  return effects;
}

/// "join b2 id=b workers=8 hint=1", "ended a 1 failed code=3 root=5 'rank 5 exited with 3'".
Event RoundsStory::event_of(const Words& words) {
  const std::string& verb = words.at(0);
  if (verb == "stop_job") return StopJob{std::stoi(words.at(1)), words.at(2)};
  if (verb == "drain_job") return DrainJob{words.at(1)};
  const Session session = session_of(words.at(1));
  Speaker& speaker = speakers_.at(words[1]);
  if (verb == "join") {
    speaker.speaks = true;
    JobRules rules = rules_;
    speaker.holding.reset();
    for (std::size_t i = 2; i < words.size(); ++i) {
      const auto [key, value] = key_value(words[i]);
      if (key == "id") {
        speaker.offer.id = value;
      } else if (key == "workers") {
        speaker.offer.workers = std::stoi(value);
      } else if (key == "hint") {
        speaker.offer.rank_hint = std::stoi(value);
      } else if (key == "line") {
        speaker.offer.launch.line = std::stoull(value);
      } else if (key == "start") {
        speaker.offer.launch.start = std::stoull(value);
      } else if (key == "kernel") {
        speaker.offer.share.kernel = value;
      } else if (key == "cores") {
        speaker.offer.share.processors = processors_from(value);
      } else if (key == "memory") {
        speaker.offer.share.memory = value;
        speaker.offer.share.lends_at = "@" + words[1];
      } else if (key == "holds") {
        speaker.holding = parse_holding(value);
      } else {
        set_rule(rules, words[i]);
      }
    }
    return Join{session, speaker.offer, rules, speaker.holding};
  }
  if (verb == "leave" || verb == "close" || verb == "end") {
    speaker.speaks = false;
    return Leave{session, std::stoi(words.at(2)), words.at(3), verb == "close", verb == "end"};
  }
  if (verb == "evict") return EvictNode{session, words.at(2)};
  if (verb == "broken") {
    speaker.speaks = false;
    return Disconnected{session};
  }
  if (verb == "failed") {
    const std::uint64_t epoch = std::stoull(words.at(2));
    Fact fact = fact_of(std::stoi(words.at(3)), words.at(4));
    for (std::size_t i = 5; i < words.size(); ++i) add_claim(fact, words[i]);
    facts_[{epoch, fact.rank}] = fact;
    return WorkerFailed{session, epoch, fact};
  }
  if (verb == "place") return TookPlace{session, std::stoull(words.at(2))};
  if (verb == "left") return WorkerLeft{session, std::stoull(words.at(2)), std::stoi(words.at(3))};
  if (verb == "called") return calls_of(session, words);
  if (verb != "ended") throw std::invalid_argument("no event " + verb);
  WorkersEnded ended;
  ended.session = session;
  ended.epoch = std::stoull(words.at(2));
  using Outcome = WorkersEnded::Outcome;
  static const std::map<std::string, Outcome> outcomes = {{"succeeded", Outcome::succeeded},
                                                          {"failed", Outcome::failed},
                                                          {"stopped", Outcome::stopped},
                                                          {"spawn_failed", Outcome::spawn_failed}};
  ended.outcome = outcomes.at(words.at(3));
  for (std::size_t i = 4; i < words.size(); ++i) {
    const auto [key, value] = key_value(words[i]);
    if (key == "code") {
      ended.exit_code = std::stoi(value);
    } else if (key == "root") {
      const int rank = std::stoi(value);
      const auto known = facts_.find({ended.epoch, rank});
      Fact fact = known == facts_.end() ? fact_of(rank, words.back()) : known->second;
      for (std::size_t more = i + 1; more < words.size(); ++more) add_claim(fact, words[more]);
      ended.facts.ranks.emplace(rank, fact);
      break;
    } else if (key == "departed") {
      ended.facts.add_left(std::stoi(value));
    } else {
      ended.sentence = words[i];
    }
  }
  return ended;
}

/// "rank 3 was killed by SIGKILL", "exited with 4".
Fact RoundsStory::fact_of(int rank, const std::string& how) const {
  Fact fact;
  fact.rank = rank;
  fact.end = Fact::End::failed;
  fact.exit_code = 1;
  fact.when = now_;
  const auto code = how.find("exited with ");
  if (code != std::string::npos) fact.exit_code = std::stoi(how.substr(code + 12));
  if (how.find("SIGKILL") != std::string::npos) fact.signal = 9;
  return fact;
}

/// "blamed=3", of which it says that it lost it; "consequence", where it knows none.
void RoundsStory::add_claim(Fact& fact, const std::string& word) {
  const auto [key, value] = key_value(word);
  if (key == "blamed") fact.claim = Claim{Fault::lost, {std::stoi(value)}};
  if (key == "absent") fact.claim = Claim{Fault::absent, {std::stoi(value)}};
  if (key == "consequence" && !fact.claim) fact.claim = Claim{Fault::lost};
}

int replay_rounds(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  std::sort(files.begin(), files.end());
  int lines = 0;
  for (const auto& file : files) {
    std::ifstream in(file);
    std::optional<RoundsStory> story;
    std::vector<std::string> text;
    for (std::string line; std::getline(in, line);) text.push_back(line);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::string& line = text[i];
      if (line.empty() || line.starts_with("#")) continue;
      const std::string where = file.filename().string() + ":" + std::to_string(i + 1);
      if (line.starts_with("config")) {
        story.emplace(line);
        continue;
      }
      const auto arrow = line.find(" ->");
      REQUIRE_MESSAGE((story && arrow != std::string::npos),
                      where << ": expected 't=SECONDS event -> effect' after a config line");
      ++lines;
      // One effect stands on the line itself, several below it, indented.
      std::string expected;
      if (arrow + 3 < line.size()) expected = "\n  " + line.substr(arrow + 4);
      while (i + 1 < text.size() && text[i + 1].starts_with("  ")) expected += "\n" + text[++i];
      if (expected == "\n  none") expected.clear();
      std::string got;
      try {
        for (const auto& effect : story->line(line.substr(0, arrow))) got += "\n  " + effect;
      } catch (const std::exception& error) {
        FAIL_CHECK(where << ": " << error.what());
      }
      CHECK_MESSAGE(story->surprise.empty(), where << ": not expected:" << story->surprise);
      CHECK_MESSAGE(got == expected, where << ": " << line.substr(0, arrow) << "\n got" << got);
    }
  }
  return lines;
}

}  // namespace dlaunch::rendezvous
