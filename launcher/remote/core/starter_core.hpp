#pragma once

#include "launcher/request/stop_signals.hpp"
#include "runtime/base/os/exit_status.hpp"

#include <dlaunch/error.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Decides about a job on other hosts when one of its starts ends, or is to end. Pure.
namespace dlaunch::launcher::remote {

struct StarterRules {
  std::vector<std::string> hosts;  ///< One for each start.
  bool elastic = false;            ///< The job goes on without a host.
  Clock::duration shutdown_timeout{};
};

// ---- What happens ----

/// A start has ended: an ssh, with its own code or its remote command's.
struct Ended {
  std::size_t start = 0;
  ExitStatus status;
  std::string last_words;  ///< The last line that it wrote to stderr; empty for none.
};
/// A start could not be made.
struct NotStarted {
  std::size_t start = 0;
  int exit_code = 0;
  std::string why;
};
/// The job is to end: a signal, or the end of our own standard input, as if it were one.
struct Stopped {
  int signal = 0;
};
/// The time of ArmTimer has come.
struct TimedOut {};

using Event = std::variant<Ended, NotStarted, Stopped, TimedOut>;

// ---- What is to be done, in order ----

/// Close all inputs: the agents on the hosts end when their standard input does.
struct CloseInputs {};
/// Stop waiting.
struct KillAll {};
struct Say {
  std::string sentence;
};
/// It replaces an earlier one.
struct ArmTimer {
  Clock::time_point at;
};
/// All have ended.
struct Exit {
  int code = 0;
};

using Effect = std::variant<CloseInputs, KillAll, Say, ArmTimer, Exit>;
using Effects = std::vector<Effect>;

/// Total: every event has an answer in every state. Not thread-safe.
class StarterCore {
 public:
  explicit StarterCore(StarterRules rules)
      : rules_(std::move(rules)), running_(rules_.hosts.size()) {}

  Effects step(const Event& event, Clock::time_point now);

 private:
  enum class State { running, ending, closed, killed, over };

  void on(const Ended& e);
  void on(const NotStarted& e);
  void on(const Stopped& e);
  void on(const TimedOut& e);
  void leave();
  void fail(int code, bool at_once);
  void close();
  std::string others() const;
  bool is_stopping() const { return state_ == State::closed || state_ == State::killed; }

  const StarterRules rules_;
  std::size_t running_;
  State state_ = State::running;
  StopSignals stop_signals_;
  std::optional<int> code_;         ///< The job's code, once something has failed.
  std::optional<int> agents_code_;  ///< The code of the last agent that ended by itself.
  Clock::time_point now_{};         ///< Time of the event being answered.
  Effects effects_;                 ///< Effects of the event being answered.
};

}  // namespace dlaunch::launcher::remote
