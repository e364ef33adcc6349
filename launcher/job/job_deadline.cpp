#include "launcher/job/job_deadline.hpp"

#include <algorithm>
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

WallClock::time_point find_latest(const DeadlineAsked& asked, WallClock::time_point deadline,
                                  WallClock::time_point now) {
  if (asked.after.count() > 0) return std::max(deadline, now + asked.after);
  return asked.at ? std::max<WallClock::time_point>(deadline, *asked.at) : deadline;
}

PutOff put_off(WallClock::time_point deadline, WallClock::time_point latest,
               WallClock::time_point now, std::chrono::milliseconds time) {
  const auto wanted = now + time;
  const auto at = std::max(deadline, std::min<WallClock::time_point>(wanted, latest));
  const bool moved = at - deadline >= std::chrono::seconds(1);
  return {.at = moved ? at : deadline, .moved = moved, .whole = wanted <= at};
}

JobDeadline::JobDeadline(boost::asio::io_context& io, Times times, std::function<void()> near,
                         std::function<void()> come)
    : timer_(io), times_(times), near_(std::move(near)), come_(std::move(come)) {
  was_near_ = times_.notice <= Clock::duration::zero();
  if (times_.at) await();
}

std::optional<PutOff> JobDeadline::put_off(std::chrono::milliseconds time) {
  if (!times_.at || has_come_) return std::nullopt;
  const auto found = launcher::put_off(*times_.at, times_.latest, WallClock::now(), time);
  if (!found.moved) return found;
  times_.at = found.at;
  await();
  return found;
}

void JobDeadline::await() {
  const auto notice = std::chrono::duration_cast<WallClock::duration>(times_.notice);
  timer_.expires_at(was_near_ ? *times_.at : *times_.at - notice);
  timer_.async_wait([this](auto error) {
    if (error) return;
    if (std::exchange(was_near_, true)) {
      has_come_ = true;
      return come_();
    }
    near_();
    await();
  });
}

}  // namespace dlaunch::launcher
