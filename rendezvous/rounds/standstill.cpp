#include "rendezvous/rounds/standstill.hpp"

#include "rendezvous/rounds/texts.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {
namespace {

/// A tick that is later than this need not be a busy machine's.
constexpr Clock::duration late_at_least = std::chrono::milliseconds(100);

}  // namespace

Clock::duration Standstill::late_at(const JobRules& rules) {
  const auto zero = Clock::duration::zero();
  const auto shortest =
      rules.reconnect_grace > zero ? std::min(rules.lease, rules.reconnect_grace) : rules.lease;
  return std::max(shortest / 4, late_at_least);
}

std::optional<Clock::duration> Standstill::notice(const JobRules& rules,
                                                  Clock::time_point last_event,
                                                  Clock::time_point now) {
  if (!expected_ || now <= deadline_after(late_at(rules), *expected_)) return std::nullopt;
  slept_ = now - last_event;
  woke_ = now;
  return slept_;
}

/// A node that got no answer for long has closed its connection for that.
std::string Standstill::break_text(const JobRules& rules, Clock::time_point broke) const {
  const std::string text = "its connection broke";
  const bool meanwhile = woke_ && broke <= deadline_after(rules.reconnect_grace, *woke_);
  if (!meanwhile || slept_ < rules.lease) return text;
  return text + " while the rendezvous stood still for " + silence_text(slept_);
}

}  // namespace dlaunch::rendezvous
