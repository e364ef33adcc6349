#pragma once

#include "launcher/watch/core/questions.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/departure.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Finds the call in which the ranks of several nodes are stuck. A node whose own ranks wait for
/// too long tells node rank 0. That asks all nodes which calls wait there, picks one, asks which
/// ranks are absent from it, and says so once. Pure.
namespace dlaunch::launcher::stuck {

// ---- What happens ----

/// A new epoch. `roster` is node rank 0's alone.
struct Begun {
  std::uint64_t epoch = 0;
  int world_size = 0;
  int nodes = 1;
  std::vector<rendezvous::Admission::Entry> roster;
};
/// A call that this node's ranks wait in is stuck.
struct Noticed {};
/// A node, perhaps this one, has told us, node rank 0, that a call is stuck.
struct Alerted {};
/// The time of TellAgain, of LookLater has come.
struct TellAgainDue {};
struct LookDue {};
/// The answers to an Ask of that epoch: to AskLook, AskWaits, AskPart.
struct Heard {
  std::uint64_t epoch = 0;
  bool by_node_0 = false;
};
struct Listed {
  std::uint64_t epoch = 0;
  Answers answers;
};
struct Described {
  std::uint64_t epoch = 0;
  CallWait wait;  ///< That of the question.
  Answers answers;
};

using Event = std::variant<Begun, rendezvous::RanksLost, Noticed, Alerted, TellAgainDue, LookDue,
                           Heard, Listed, Described>;

// ---- What is to be done, in order ----

/// Forget the times of TellAgain and LookLater.
struct Rest {};
/// Ask node rank 0; then comes Heard.
struct TellNode0 {
  std::uint64_t epoch = 0;
};
/// Ask all nodes for the calls that wait there; then comes Listed.
struct List {
  std::uint64_t epoch = 0;
};
/// Ask all nodes what their ranks have to do with this call; then comes Described.
struct Describe {
  std::uint64_t epoch = 0;
  CallWait wait;
};
struct TellAgain {
  Clock::time_point at;
};
struct LookLater {
  Clock::time_point at;
};
struct Say {
  std::string sentence;
};

using Effect = std::variant<Rest, TellNode0, List, Describe, TellAgain, LookLater, Say>;
using Effects = std::vector<Effect>;

/// Total: every event has an answer in every state. Not thread-safe.
class StuckCore {
 public:
  Effects step(const Event& event, Clock::time_point now);

  /// The sentence about the call that is stuck now; empty if none is, and on nodes other than rank
  /// 0.
  const std::string& stuck() const { return epoch_.stuck; }

 private:
  void on(const Begun& e);
  void on(const rendezvous::RanksLost& e);
  void on(const Noticed&) { tell_node_0(); }
  void on(const Alerted&);
  void on(const TellAgainDue&) { tell_node_0(); }
  void on(const LookDue&);
  void on(const Heard& e);
  void on(const Listed& e);
  void on(const Described& e);
  void tell_node_0();
  void add_silent(StuckCall& stuck, const Answers& answers) const;

  struct Epoch {
    Begun begun = {};
    std::map<int, Departure> lost = {};  ///< By rank.
    StuckJudge judge = {};
    std::string stuck = {};
    bool looking = false;  ///< A look is under way or about to begin.
  };
  Epoch epoch_;
  Clock::time_point next_look_{};

  Clock::time_point now_{};  ///< Time of the event being answered.
  Effects effects_;          ///< Effects of the event being answered.
};

}  // namespace dlaunch::launcher::stuck
