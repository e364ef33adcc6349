#pragma once

#include "launcher/request/stop_signals.hpp"
#include "runtime/base/os/exit_status.hpp"

#include <dlaunch/error.hpp>

#include <utility>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// Which signals end the job, and how long that may take.
struct FrontRules {
  std::vector<int> stopping;
  Clock::duration shutdown_timeout{};
};

/// Decides what the front does with signals, and with an agent that does not obey. Pure.
namespace front {

// ---- What happens ----

/// A signal has come for dlaunch.
struct Signalled {
  int number = 0;
};
/// The time of Look has come.
struct Looked {
  bool stands_still = false;  ///< The agent is stopped, or has not taken what was handed on.
};
struct AgentEnded {
  ExitStatus status;
};

using Event = std::variant<Signalled, Looked, AgentEnded>;

// ---- What is to be done, in order ----

/// The agent gets the signal.
struct HandOn {
  int number = 0;
};
/// Look at the agent at this time; it replaces an earlier wish.
struct Look {
  Clock::time_point at;
};
/// The user hears that the agent stands still, and when it is killed.
struct Warn {
  int signal = 0;
  Clock::duration left{};
};
/// Kill the agent, and look at it no more.
struct KillAgent {
  enum class Why { third_signal, stands_still };
  Why why = Why::third_signal;
};
/// Kill everything that the agent has left behind, and wait for it.
struct Sweep {
  Clock::duration timeout{};
};
struct PutTerminalBack {
  bool failed = false;
};
/// Remove what the agent can no longer remove.
struct ClearAway {};
/// The user hears that the agent was killed by somebody else.
struct TellLost {
  ExitStatus status;
};
/// The end, with this code.
struct Exit {
  int code = 0;
};

using Effect =
    std::variant<HandOn, Look, Warn, KillAgent, Sweep, PutTerminalBack, ClearAway, TellLost, Exit>;
using Effects = std::vector<Effect>;

/// Total: every event has an answer in every state. Not thread-safe.
class FrontCore {
 public:
  explicit FrontCore(FrontRules rules) : rules_(std::move(rules)) {}

  Effects step(const Event& event, Clock::time_point now);

 private:
  struct Guarding {};
  /// The job is to end, since the first of these signals.
  struct Ending {
    int first_signal = 0;
    Clock::time_point patience;  ///< Until this time the agent may stand still.
    int signals = 1;             ///< The first one, and each that came again.
    Clock::time_point look_at{};
    bool warned = false;
  };
  struct Killing {
    int first_signal = 0;
  };
  struct Over {};

  void on(const Signalled& e);
  void on(const Looked& e);
  void on(const AgentEnded& e);
  void look_later(Ending& ending);
  void kill(KillAgent::Why why);

  const FrontRules rules_;
  StopSignals stop_signals_;
  std::variant<Guarding, Ending, Killing, Over> state_;

  Clock::time_point now_{};  ///< Time of the event being answered.
  Effects effects_;          ///< Effects of the event being answered.
};

}  // namespace front
}  // namespace dlaunch::launcher
