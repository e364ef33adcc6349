#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <cstdint>
#include <optional>

namespace dlaunch {

/// One wait's part in the search for ranks that wait for each other in different calls and would do
/// so until their timeout. Under the mesh's lock.
class ChainWatch {
 public:
  /// The search begins when the wait has lasted until `from`; the watch makes sure that this is
  /// noticed. `pause` is a quarter of that time, and half the time between two chains of this
  /// rank's own.
  ChainWatch(const CallFrame& frame, const Waiting& waiting, Clock::time_point from,
             Clock::duration pause);

  std::optional<Ending> look(Clock::time_point now, NextLook& next);

 private:
  using TimePoint = Clock::time_point;

  bool waits_to_be_taken() const;
  int whom() const;
  bool is_blocked() const;
  transport::WaitLink own_link() const;
  void post(int to, const transport::WaitChain& chain) const;
  std::optional<Ending> take(transport::WaitChain chain, int next, TimePoint now);

  const CallFrame& frame_;
  const Waiting& waiting_;
  const std::uint64_t turn_;  ///< Tells this wait from the rank's others.
  const bool is_probe_;
  const bool may_be_blocked_;
  const TimePoint from_;
  TimePoint next_own_;     ///< When this rank begins a chain again,
  Clock::duration pause_;  ///< and how long after the one before.
  TimePoint handed_on_{};  ///< When one was handed on last.
};

}  // namespace dlaunch
