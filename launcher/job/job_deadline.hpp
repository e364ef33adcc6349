#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/text/wall_clock.hpp"

#include <dlaunch/error.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/system_timer.hpp>

namespace dlaunch::launcher {

/// The time at which the job is to end, if there is one.
struct DeadlineFound {
  std::optional<WallClock::time_point> at;
  std::string note;  ///< Note to the user where a scheduler's time is past, and is ignored.
};
DeadlineFound find_deadline(const DeadlineAsked& asked, WallClock::time_point now);
/// The time of --deadline-latest; one that is missing or past puts nothing off.
WallClock::time_point find_latest(const DeadlineAsked& asked, WallClock::time_point deadline,
                                  WallClock::time_point now);

/// The outcome for a worker that asked for more time.
struct PutOff {
  WallClock::time_point at;  ///< The deadline now.
  bool moved = false;        ///< Moved by at least a second; less is not told.
  bool whole = true;         ///< It gets all the time that it wanted, to a second.
  bool operator==(const PutOff&) const = default;
};
/// Puts a deadline off so that `time` is left from `now` on, but not beyond `latest`. Pure.
PutOff put_off(WallClock::time_point deadline, WallClock::time_point latest,
               WallClock::time_point now, std::chrono::milliseconds time);

/// "2026-11-23T14:00:00Z".
std::string deadline_text(WallClock::time_point at);

/// Waits for the deadline, by the wall clock, as the people and schedulers do that set it. Not
/// thread-safe.
class JobDeadline {
 public:
  struct Times {
    std::optional<WallClock::time_point> at;
    WallClock::time_point latest{};
    Clock::duration notice{};
  };
  /// `near` is called once, `notice` before the deadline or at once where that is past, and `come`
  /// then, both from the loop. Without a time, and with a notice of 0, they are not.
  JobDeadline(boost::asio::io_context& io, Times times, std::function<void()> near,
              std::function<void()> come);

  /// The present deadline; nullopt: there is none.
  const std::optional<WallClock::time_point>& at() const { return times_.at; }
  /// nullopt where there is no deadline, or not any more.
  std::optional<PutOff> put_off(std::chrono::milliseconds time);

 private:
  void await();

  boost::asio::system_timer timer_;
  Times times_;
  const std::function<void()> near_, come_;
  bool was_near_ = false, has_come_ = false;
};

}  // namespace dlaunch::launcher
