#pragma once

#include "launcher/watch/core/stuck_watch.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Finds ranks that have been stopped (SIGSTOP) for long: in programs that do not use the runtime
/// nothing else may report them. Pure, reads no clock.
class StoppedRanks {
 public:
  /// With a `limit` of 0 none is reported.
  explicit StoppedRanks(Clock::duration limit) : limit_(limit) {}

  /// A sentence about ranks that have been stopped for the limit; each is named once per stop. A
  /// member of the world gets twice the time, since the report of the call that waits for it comes
  /// first and says more.
  std::optional<std::string> look(const std::vector<RankSight>& ranks, Clock::time_point now);
  /// The user stops the job (Ctrl-Z): until it goes on, ranks that stop are not reported.
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
