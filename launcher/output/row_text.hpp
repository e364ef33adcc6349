#pragma once

#include <cstddef>
#include <string>

namespace dlaunch::launcher {

/// Shortens a sentence, whose parts are separated by "; ", to a row of so many columns, the last of
/// which stays free; 0: no limit. Text in brackets is dropped first, then whole parts from the end,
/// as far as needed. Pure.
std::string fitting(std::string sentence, std::size_t columns);

}  // namespace dlaunch::launcher
