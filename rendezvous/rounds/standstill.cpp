#include "rendezvous/rounds/standstill.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"

namespace dlaunch::rendezvous {

std::optional<Clock::duration> Standstill::notice(const JobRules& rules,
                                                  Clock::time_point last_event,
                                                  Clock::time_point now) {
  if (!expected_ || now <= deadline_after(rules.liveness.late_tick(), *expected_))
    return std::nullopt;
  slept_ = now - last_event;
  woke_ = now;
  return slept_;
}

/// A node that long got no answer has closed its connection because of that.
std::string Standstill::break_text(const JobRules& rules, Clock::time_point broke) const {
  const std::string text = "its connection broke";
  const bool meanwhile = woke_ && broke <= deadline_after(rules.liveness.reconnect_grace, *woke_);
  if (!meanwhile || slept_ < rules.liveness.lease) return text;
  return text + " while the rendezvous stood still for " + silence_text(slept_);
}

}  // namespace dlaunch::rendezvous
