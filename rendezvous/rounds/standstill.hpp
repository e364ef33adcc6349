#pragma once

#include "rendezvous/rounds/rounds.hpp"

namespace dlaunch::rendezvous {

/// Notices that our own process or its machine stood still. That time does not count against the
/// nodes: their messages may not have been read yet, and they may have stood still, too.
class Standstill {
 public:
  /// We have asked for a tick at that time.
  void expect(std::optional<Clock::time_point> tick) { expected_ = tick; }
  /// The length of our standstill, if an event this late shows one.
  std::optional<Clock::duration> notice(const JobRules& rules, Clock::time_point last_event,
                                        Clock::time_point now);
  /// Why a node whose connection broke at that time is lost.
  std::string break_text(const JobRules& rules, Clock::time_point broke) const;

 private:
  std::optional<Clock::time_point> expected_;
  std::optional<Clock::time_point> woke_;  ///< The end of the last standstill.
  Clock::duration slept_{};                ///< Its length.
};

}  // namespace dlaunch::rendezvous
