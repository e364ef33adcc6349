#include "runtime/base/text/wall_clock.hpp"

#include <array>
#include <cstdio>
#include <ctime>

namespace dlaunch {

namespace {

std::string formatted(WallClock::time_point at, const char* pattern, const char* suffix) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(at);
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(at - whole).count();
  const std::time_t seconds = WallClock::to_time_t(whole);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), pattern, &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03d", static_cast<int>(ms));
  return std::string(text.data()) + fraction.data() + suffix;
}

}  // namespace

std::string log_time(WallClock::time_point at, std::chrono::seconds utc_offset) {
  return formatted(at + utc_offset, "%Y-%m-%d_%H:%M:%S", "");
}

std::string iso_time(WallClock::time_point at) { return formatted(at, "%Y-%m-%dT%H:%M:%S", "Z"); }

std::chrono::seconds local_utc_offset(WallClock::time_point at) {
  const std::time_t seconds = WallClock::to_time_t(at);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return std::chrono::seconds(parts.tm_gmtoff);
}

}  // namespace dlaunch
