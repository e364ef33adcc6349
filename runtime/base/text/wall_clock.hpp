#pragma once

#include <chrono>
#include <string>

namespace dlaunch {

/// The clock for telling people when something happened; never for deadlines.
using WallClock = std::chrono::system_clock;

/// "2026-11-20_12:45:10.123", `utc_offset` east of Greenwich.
std::string log_time(WallClock::time_point at, std::chrono::seconds utc_offset);
/// "2026-11-20T12:45:10.123Z".
std::string iso_time(WallClock::time_point at);
/// The zone this host shows times in.
std::chrono::seconds local_utc_offset(WallClock::time_point at);

}  // namespace dlaunch
