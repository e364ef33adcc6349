#include "rendezvous/service/refusal_log.hpp"

#include "runtime/base/deadline.hpp"

#include <utility>

namespace dlaunch::rendezvous {

void RefusalLog::add(store::RefusalKind kind, std::string sentence, Clock::time_point now,
                     const Tell& tell) {
  const auto place = static_cast<std::size_t>(kind);
  ++counts_.at(place);
  Kind& of = kinds_.at(place);
  if (of.until) {
    ++of.untold;
    of.last = std::move(sentence);
    return;
  }
  of.until = deadline_after(period, now);
  tell(std::move(sentence));
}

void RefusalLog::tick(Clock::time_point now, const Tell& tell) {
  for (Kind& of : kinds_) {
    if (!of.until || *of.until > now) continue;
    if (of.untold == 0) {
      of.until.reset();
      continue;
    }
    of.until = deadline_after(period, now);
    const auto before = std::exchange(of.untold, 0) - 1;
    tell(std::exchange(of.last, {}) +
         (before == 0 ? "" : " (and " + std::to_string(before) + " more in 60 s)"));
  }
}

std::optional<Clock::time_point> RefusalLog::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Kind& of : kinds_) {
    if (of.until && (!next || *of.until < *next)) next = of.until;
  }
  return next;
}

}  // namespace dlaunch::rendezvous
