#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/text/wall_clock.hpp"

#include <dlaunch/error.hpp>

#include <functional>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/system_timer.hpp>

namespace dlaunch::launcher {

/// The time at which the job is to end, if there is one.
struct DeadlineFound {
  std::optional<WallClock::time_point> at;
  std::string note;  ///< To be said where a scheduler's time is past, which is then none.
};
DeadlineFound find_deadline(const DeadlineAsked& asked, WallClock::time_point now);

/// "2026-11-23T14:00:00Z".
std::string deadline_text(WallClock::time_point at);

/// Waits for the deadline, by the wall clock: who sets it goes by that. Not thread-safe.
class JobDeadline {
 public:
  /// `near` is called once, `notice` before the time `at` or at once where that is past, and `come`
  /// then, both from the loop. Without a time, and with a notice of 0, they are not.
  JobDeadline(boost::asio::io_context& io, std::optional<WallClock::time_point> at,
              Clock::duration notice, std::function<void()> near, std::function<void()> come);

 private:
  void wait_until(WallClock::time_point at, const std::function<void()>& then);

  boost::asio::system_timer timer_;
};

}  // namespace dlaunch::launcher
