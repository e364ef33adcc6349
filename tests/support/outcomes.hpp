#pragma once

#include "tests/support/ranks.hpp"

#include <dlaunch/error.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::testing {

/// No rank failed.
inline void check_all(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

/// The error that the call ends with; nullopt: none.
template <class Call>
std::optional<Error> error_of(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

/// For the thread of a rank, which fails with `what` where this does not hold.
inline void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}
inline void require(bool holds, const std::string& what) { require(holds, what.c_str()); }

}  // namespace dlaunch::testing
