#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {

/// Watches whether ranks that a call needs are gone, and gives the news of the cause time to come.
/// Under the mesh's lock.
class LossWatch {
 public:
  explicit LossWatch(const CallFrame& frame) : frame_(frame), mesh_(frame.setting.mesh) {}

  std::optional<Ending> look(const Waiting& waiting, NextLook& next);

 private:
  using TimePoint = Clock::time_point;

  std::optional<Ending> look_for_left(NextLook& next);
  std::optional<Ending> look_at_source(int world_rank, const Waiting& waiting, NextLook& next);
  std::optional<Ending> look_at(int world_rank, const std::string* closed, NextLook& next);
  std::optional<Ending> look_for_lost(NextLook& next);
  const std::string* end_of(int world_rank, const Waiting& waiting) const;
  TimePoint noticed(int world_rank);
  Clock::duration grace_for(int world_rank) const;
  Ending lost(int world_rank, const std::string& cause) const;
  Ending gone(int world_rank, const std::string* closed) const;

  const CallFrame& frame_;
  const transport::Links& mesh_;
  /// Ranks that are gone, and when this was first seen.
  std::vector<std::pair<int, TimePoint>> noticed_;
};

}  // namespace dlaunch
