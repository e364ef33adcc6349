#include "launcher/doctor/core/host_clock.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace dlaunch::launcher::doctor {
namespace {

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> time_of(std::string_view text) {
  constexpr std::size_t digits = 9;
  constexpr std::int64_t seconds_max = std::int64_t{1} << 33;
  const auto dot = text.find('.');
  if (dot == std::string_view::npos || text.size() != dot + 1 + digits) return std::nullopt;
  const auto seconds = number_in(text.substr(0, dot));
  const auto nanoseconds = number_in(text.substr(dot + 1));
  if (!seconds || !nanoseconds || *seconds > seconds_max) return std::nullopt;
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(*seconds) + std::chrono::nanoseconds(*nanoseconds)));
}

HostClock clock_of(const std::string& host, std::span<const ClockSample> samples) {
  const auto round_trip = [](const ClockSample& sample) { return sample.received - sample.sent; };
  const auto& best = *std::ranges::min_element(samples, {}, round_trip);
  const auto half = round_trip(best) / 2;
  return {.host = host,
          .ahead = std::chrono::round<std::chrono::microseconds>(best.theirs - (best.sent + half)),
          .error = std::chrono::ceil<std::chrono::microseconds>(std::max(half, half.zero()))};
}

}  // namespace dlaunch::launcher::doctor
