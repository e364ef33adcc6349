#pragma once

#include <cstdlib>
#include <string_view>

/// Questions that tests of every area ask.
namespace dlaunch::testing {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The environment has DLAUNCH_TEST_FULL: exhaustive grids and hundreds of rounds; else a fixed
/// part of them.
inline bool is_full() { return std::getenv("DLAUNCH_TEST_FULL") != nullptr; }

}  // namespace dlaunch::testing
