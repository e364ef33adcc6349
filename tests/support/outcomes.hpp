#pragma once

#include "tests/support/ranks.hpp"

#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::testing {

/// No rank failed.
inline void check_all(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

}  // namespace dlaunch::testing
