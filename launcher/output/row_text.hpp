#pragma once

#include <cstddef>
#include <string>

namespace dlaunch::launcher {

/// A sentence of several parts, separated by "; ", as a row of so many columns shows it, the last
/// of which stays free; 0: as it is. What stands in brackets goes first, then the last parts,
/// whole, as far as needed. Pure.
std::string fitting(std::string sentence, std::size_t columns);

}  // namespace dlaunch::launcher
