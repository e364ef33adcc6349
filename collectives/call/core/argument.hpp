#pragma once

#include <dlaunch/reduction.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace dlaunch {

/// The arguments of a call that ranks must have alike and its fingerprint only holds a hash of: in
/// words, for ranks that differ. Borrows all of it.
struct Argument {
  const Reduction* reduction = nullptr;
  std::span<const std::size_t> counts = {};
  std::span<const int> ranks = {};

  /// "counts 1, 2", "the factor 2.5", "the operation 'longest' in any order", "ranks 0, 2".
  std::string text() const;
};

}  // namespace dlaunch
