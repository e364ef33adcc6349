#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Compares another host's clock with ours. Pure.
namespace dlaunch::launcher::doctor {

/// The clock of another host, as this one's sees it.
struct HostClock {
  std::string host = {};
  std::chrono::microseconds ahead{};  ///< Ahead of this host's clock; negative: behind it.
  std::chrono::microseconds error{};  ///< Largest error of `ahead`, either way.
  std::string problem = {};           ///< Why the clock is not known; empty where it is.
};

/// A question for the time, and its answer.
struct ClockSample {
  std::chrono::system_clock::time_point sent, theirs, received;
};

/// "1795442400.123456789", as `date +%s.%N` prints it; nullopt for anything else.
std::optional<std::chrono::system_clock::time_point> time_of(std::string_view text);

/// Judges by the sample with the shortest round trip, as if both ways took equally long: the error
/// is half a round trip at most. Needs at least one sample.
HostClock clock_of(const std::string& host, std::span<const ClockSample> samples);

}  // namespace dlaunch::launcher::doctor
