#pragma once

#include <dlaunch/reduction.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace dlaunch {

/// What ranks must have alike of a call's arguments of which its fingerprint holds a hash only: in
/// words, for ranks that do not. Borrows all of it.
struct Argument {
  const Reduction* reduction = nullptr;
  std::span<const std::size_t> counts = {};
  std::span<const int> ranks = {};

  /// "counts 1, 2", "the factor 2.5", "the operation 'longest' in any order", "ranks 0, 2".
  std::string text() const;
};

}  // namespace dlaunch
