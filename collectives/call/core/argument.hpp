#pragma once

#include <dlaunch/reduction.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace dlaunch {

/// The arguments that must be equal on all ranks and of which the fingerprint has only a hash; in
/// words, for ranks that differ. Borrows all of it.
struct Argument {
  const Reduction* reduction = nullptr;
  std::span<const std::size_t> counts = {};
  std::span<const int> ranks = {};

  /// "counts 1, 2", "the factor 2.5", "the operation 'longest' in any order", "ranks 0, 2".
  std::string text() const;
};

}  // namespace dlaunch
