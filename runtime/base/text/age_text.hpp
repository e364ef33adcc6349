#pragma once

#include <dlaunch/error.hpp>

#include <string>

namespace dlaunch {

/// "40 ms", "1.5 s", "12 s", "20 min", "3 h".
std::string age_text(Clock::duration age);

}  // namespace dlaunch
