#include "rendezvous/service/refusal_log.hpp"

#include "runtime/base/deadline.hpp"

#include <utility>

namespace dlaunch::rendezvous {

void RefusalLog::Kind::add(const std::string& of, std::string sentence, int lines_max,
                           Clock::time_point now, const Tell& tell) {
  if (!until) {
    until = deadline_after(period, now);
    told = 0;
  }
  if (told == lines_max) {
    ++untold;
    job = of;
    last = std::move(sentence);
    return;
  }
  ++told;
  tell(of, std::move(sentence));
}

void RefusalLog::Kind::tick(Clock::time_point now, std::string_view whose, const Tell& tell) {
  if (!until || *until > now) return;
  if (untold == 0) {
    until.reset();
    return;
  }
  until = deadline_after(period, now);
  told = 1;
  const auto before = std::exchange(untold, 0) - 1;
  std::string more;
  if (before > 0)
    more = " (and " + std::to_string(before) + " more" + std::string(whose) + " in 60 s)";
  tell(std::exchange(job, {}), std::exchange(last, {}) + more);
}

void RefusalLog::add(store::RefusalKind kind, std::string sentence, Clock::time_point now,
                     const Tell& tell) {
  const auto place = static_cast<std::size_t>(kind);
  ++counts_.at(place);
  kinds_.at(place).add("", std::move(sentence), 1, now, tell);
}

void RefusalLog::add_node(const std::string& job, bool known, std::string sentence,
                          Clock::time_point now, const Tell& tell) {
  const bool apart = known && (nodes_.size() < jobs_max || nodes_.contains(job));
  nodes_[apart ? job : std::string()].add(job, std::move(sentence), nodes_told_max, now, tell);
}

void RefusalLog::tick(Clock::time_point now, const Tell& tell) {
  for (Kind& of : kinds_) of.tick(now, "", tell);
  for (auto& [job, of] : nodes_) of.tick(now, job.empty() ? " nodes of any job" : "", tell);
  std::erase_if(nodes_, [](const auto& each) { return !each.second.until; });
}

std::optional<Clock::time_point> RefusalLog::next_deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](const Kind& of) {
    if (of.until && (!next || *of.until < *next)) next = of.until;
  };
  for (const Kind& of : kinds_) consider(of);
  for (const auto& [job, of] : nodes_) consider(of);
  return next;
}

}  // namespace dlaunch::rendezvous
