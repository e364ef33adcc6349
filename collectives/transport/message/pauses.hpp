#pragma once

#include <dlaunch/store.hpp>

#include <algorithm>
#include <chrono>

namespace dlaunch::transport {

/// Ever longer pauses between questions to the store for a value that is not there yet. A value.
class Pauses {
 public:
  /// Whether it is time; then the next pause begins.
  bool are_over(Clock::time_point now) noexcept {
    if (now < next_) return false;
    next_ = now + pause_;
    pause_ = std::min<Clock::duration>(2 * pause_, pause_max);
    return true;
  }
  /// The time of the next question.
  Clock::time_point next() const noexcept { return next_; }
  /// Nothing is awaited now: the next pause is short again.
  void forget() noexcept { pause_ = pause_first; }

 private:
  static constexpr Clock::duration pause_first = std::chrono::milliseconds(1);
  static constexpr Clock::duration pause_max = std::chrono::milliseconds(50);

  Clock::time_point next_{};
  Clock::duration pause_ = pause_first;
};

}  // namespace dlaunch::transport
