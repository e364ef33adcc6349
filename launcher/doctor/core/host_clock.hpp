#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// How another host's clock is found to differ. Pure.
namespace dlaunch::launcher::doctor {

/// The clock of another host, as this one's sees it.
struct HostClock {
  std::string host = {};
  std::chrono::microseconds ahead{};  ///< Of this host's; behind it where it is negative.
  std::chrono::microseconds error{};  ///< It may be so much more or less.
  std::string problem = {};           ///< Why it is not known; empty where it is.
};

/// A question for the time, and its answer.
struct ClockSample {
  std::chrono::system_clock::time_point sent, theirs, received;
};

/// "1795442400.123456789", as `date +%s.%N` prints it; nullopt for anything else.
std::optional<std::chrono::system_clock::time_point> time_of(std::string_view text);

/// By the sample with the shortest round trip, as if the way there took as long as the way back:
/// the truth is no further away than half of it. At least one sample.
HostClock clock_of(const std::string& host, std::span<const ClockSample> samples);

}  // namespace dlaunch::launcher::doctor
