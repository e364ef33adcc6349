#pragma once

#include "launcher/watch/core/progress.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// Decides when a node looks at its ranks' work, and on node rank 0 also when all nodes are asked
/// whether the job has stalled, and when it has. Pure.
namespace dlaunch::launcher::stall {

// ---- What happens ----

/// Another attempt; its workers are not started yet.
struct Begun {
  std::uint64_t epoch = 0;
  int nodes = 1;
  int node_rank = 0;
};
/// Its workers have been started.
struct Started {};
/// It is over on this node.
struct Stopped {};
/// A rank has declared progress.
struct Declared {};
/// The user stops the job, or lets it go on.
struct Suspended {
  bool suspended = false;
};
/// The time of LookLater has come, and this was seen.
struct Looked {
  std::vector<WorkSigns> signs;
};
/// The time of AskLater has come.
struct AskDue {};
/// The answers to an Ask of that epoch.
struct Told {
  std::uint64_t epoch = 0;
  JobProgress job;
};

using Event = std::variant<Begun, Started, Stopped, Declared, Suspended, Looked, AskDue, Told>;

// ---- What is to be done, in order ----

/// Forget the times of LookLater and AskLater.
struct Rest {};
struct LookLater {
  Clock::time_point at;
};
struct AskLater {
  Clock::time_point at;
};
/// Ask all nodes for their progress; then comes Told.
struct Ask {
  std::uint64_t epoch = 0;
};
/// All nodes are to end their ranks, for this reason.
struct End {
  std::string sentence;
};

using Effect = std::variant<Rest, LookLater, AskLater, Ask, End>;
using Effects = std::vector<Effect>;

/// Total: every event has an answer in every state. Not thread-safe.
class StallCore {
 public:
  /// `limit`: --stall-timeout.
  explicit StallCore(Clock::duration limit) : limit_(limit) {}

  Effects step(const Event& event, Clock::time_point now);

  /// This node's answer, without the sentence of what its ranks do.
  NodeProgress progress(Clock::time_point now) const;

 private:
  void on(const Begun& e);
  void on(const Started&);
  void on(const Stopped&);
  void on(const Declared&);
  void on(const Suspended& e);
  void on(const Looked& e);
  void on(const AskDue&);
  void on(const Told& e);
  void look_later();
  void ask_after(Clock::duration time);

  const Clock::duration limit_;
  Begun attempt_;
  std::optional<ProgressClock> clock_;  ///< Unset until the workers have been started.

  Clock::time_point now_{};  ///< Time of the event being answered.
  Effects effects_;          ///< Effects of the event being answered.
};

}  // namespace dlaunch::launcher::stall
