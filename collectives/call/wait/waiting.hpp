#pragma once

#include "collectives/call/core/ending.hpp"
#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/transport.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>

namespace dlaunch {

/// The thing that a call waits for. The ranks that it needs are found anew each time, since a rank
/// that has done its part is needed no more, and may leave.
struct Waiting {
  const transport::Receive* receive = nullptr;
  const transport::Outgoing* outgoing = nullptr;
  /// World ranks from which it waits for something other than messages; with `any`, one of `ranks`.
  std::optional<int> rank = std::nullopt;
  std::span<const int> ranks = {};

  bool in_shm_group = false;  ///< It waits for a member of an shm group to publish.
  bool in_memory = false;     ///< It waits for that rank alone to write to memory.
  bool all = false;           ///< It waits for a device's work with all ranks.
  bool has_spun = false;      ///< It has spun for long enough to sleep now.

  /// World ranks from which something has still to come: from all of them, or `any`.
  std::span<const int> to_receive() const;
  bool any() const;
  /// World ranks to which something has still to go, or which have to confirm it.
  std::span<const int> to_send() const;
  /// The one rank from which something has still to come; -1: several, or none.
  int whom() const {
    const auto from = to_receive();
    return from.empty() || any() ? -1 : from.front();
  }
};

inline std::span<const int> Waiting::to_receive() const {
  if (rank) return {&*rank, 1};
  if (receive == nullptr) return ranks;
  const transport::Receive::State state = receive->state;
  const bool has_come =
      state == transport::Receive::State::done || state == transport::Receive::State::answering;
  if (has_come) return {};
  if (state == transport::Receive::State::filling) return {&receive->source, 1};
  return receive->awaited();
}

inline bool Waiting::any() const {
  if (receive == nullptr) return !ranks.empty();
  return receive->from == any_source && receive->state == transport::Receive::State::waiting;
}

inline std::span<const int> Waiting::to_send() const {
  if (outgoing == nullptr || outgoing->state == transport::Outgoing::State::done) return {};
  return {&outgoing->to, 1};
}

/// Whether the wait is satisfied. Asked under the mesh's lock.
using Ready = std::function<bool()>;

/// The time at which a wait has to look again for changes of which nobody tells.
class NextLook {
 public:
  void at_latest(Clock::time_point when) { when_ = std::min(when_, when); }
  Clock::time_point when() const { return when_; }

 private:
  Clock::time_point when_ = Clock::time_point::max();
};

}  // namespace dlaunch
