#pragma once

#include "rendezvous/rounds/rounds.hpp"

namespace dlaunch::rendezvous {

/// Notices that our own process stood still, or its machine: then it was us who slept, not the
/// nodes. The time since we last did anything does not count for them: what they said meanwhile may
/// not have been read yet, and they may have slept, too.
class Standstill {
 public:
  /// We have asked for a tick at that time.
  void expect(std::optional<Clock::time_point> tick) { expected_ = tick; }
  /// For how long we stood still, if an event so late says that we did.
  std::optional<Clock::duration> notice(const JobRules& rules, Clock::time_point last_event,
                                        Clock::time_point now);
  /// Why a node is lost whose connection broke then.
  std::string break_text(const JobRules& rules, Clock::time_point broke) const;

 private:
  std::optional<Clock::time_point> expected_;
  std::optional<Clock::time_point> woke_;  ///< The end of the last standstill.
  Clock::duration slept_{};                ///< Its length.
};

}  // namespace dlaunch::rendezvous
