#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::rendezvous {

/// One line per effect, as a transcript says it: "admit a epoch=1 node=0/2 ranks=0-7/16".
std::string print(const Effect& effect, const std::map<Session, std::string>& names);

/// A job as a transcript tells it: nodes by name, a clock that moves with the story. The nodes
/// send a heartbeat every second unless they were silenced, and ticks come when they are asked for.
class RoundsStory {
 public:
  /// "config nodes=2..4 last_call=30": a job that has not begun.
  explicit RoundsStory(const std::string& config);

  /// "t=3 join b workers=8": lets the time until then pass, in which nothing may happen, and
  /// returns what follows, one effect a string. "t=3" alone: what happens at that time.
  std::vector<std::string> line(const std::string& text);
  /// Something that happened between two lines, which nobody expected. Empty: nothing.
  std::string surprise;

 private:
  void pass_until(Clock::time_point until, std::vector<std::string>& at_the_end);
  /// In parts, as a service that has other jobs does it.
  void take(const Event& event, std::vector<std::string>& into);
  Event event_of(const std::vector<std::string>& words);
  Session session_of(const std::string& name);
  Fact fact_of(int rank, const std::string& how) const;
  static void add_claim(Fact& fact, const std::string& word);

  struct Speaker {
    Session session = 0;
    bool speaks = false;
    NodeOffer offer;
    std::optional<Holding> holding;
  };
  JobRules rules_;
  Rounds rounds_;
  Clock::time_point now_{};
  std::optional<Clock::time_point> held_since_;
  std::map<std::string, Speaker> speakers_;
  std::map<Session, std::string> names_;
  /// By epoch and rank, of those that failed and whose node runs.
  std::map<std::pair<std::uint64_t, int>, Fact> facts_;
};

/// Checks every story in these files; returns how many lines they had.
int replay_rounds(const std::filesystem::path& folder);

}  // namespace dlaunch::rendezvous
