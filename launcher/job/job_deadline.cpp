#include "launcher/job/job_deadline.hpp"

#include <utility>

namespace dlaunch::launcher {

DeadlineFound find_deadline(const DeadlineAsked& asked, WallClock::time_point now) {
  if (asked.after.count() > 0) return {now + asked.after, ""};
  if (!asked.at) return {};
  if (asked.by_scheduler && *asked.at <= now) {
    return {std::nullopt, "the scheduler's end of the job, " + deadline_text(*asked.at) +
                              ", is past: this job has no deadline (--deadline)"};
  }
  return {*asked.at, ""};
}

std::string deadline_text(WallClock::time_point at) {
  constexpr std::size_t whole_seconds = 19;
  return iso_time(at).substr(0, whole_seconds) + "Z";
}

JobDeadline::JobDeadline(boost::asio::io_context& io, std::optional<WallClock::time_point> at,
                         Clock::duration notice, std::function<void()> near,
                         std::function<void()> come)
    : timer_(io) {
  if (!at) return;
  const auto await_end = [this, end = *at, come = std::move(come)] { wait_until(end, come); };
  if (notice <= Clock::duration::zero()) {
    await_end();
    return;
  }
  const auto notice_at = *at - std::chrono::duration_cast<WallClock::duration>(notice);
  wait_until(notice_at, [near = std::move(near), await_end] {
    near();
    await_end();
  });
}

void JobDeadline::wait_until(WallClock::time_point at, const std::function<void()>& then) {
  timer_.expires_at(at);
  timer_.async_wait([then](auto error) {
    if (!error) then();
  });
}

}  // namespace dlaunch::launcher
