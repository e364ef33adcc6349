#pragma once

#include "launcher/watch/stuck_watch.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Finds ranks that have been stopped (SIGSTOP) for long, which nobody may say of programs that do
/// not use the runtime. Pure, reads no clock.
class StoppedRanks {
 public:
  /// `limit`: 0: they are not told.
  explicit StoppedRanks(Clock::duration limit) : limit_(limit) {}

  /// Those whose time has come, each once as long as it is stopped, in a sentence. A member of the
  /// world gets twice the time: whoever waits for it is told before, and with more.
  std::optional<std::string> look(const std::vector<RankSight>& ranks, Clock::time_point now);
  /// The user stops the job (Ctrl-Z), and knows: until it goes on, ranks that stop are not told.
  void suspend(bool suspended) { suspended_ = suspended; }
  /// A new attempt.
  void forget() { stops_.clear(); }

 private:
  struct Stop {
    Clock::time_point since;
    bool told = false;
  };
  const Clock::duration limit_;
  bool suspended_ = false;
  std::map<int, Stop> stops_;  ///< By rank.
};

}  // namespace dlaunch::launcher
