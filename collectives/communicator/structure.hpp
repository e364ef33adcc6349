#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tree.hpp>

#include <optional>
#include <span>
#include <string>

/// What the ranks' structured values become together. Pure.
namespace dlaunch::structure {

/// A difference between a rank's value and rank 0's, and what both are there: "a list of 2 items".
struct Difference {
  int rank = 0;
  std::string first, other;
  /// "their values differ in structure at '.layers[2]'".
  std::string sentence;
};

/// The first path at which a rank's value has another structure than rank 0's: kind, keys (in any
/// order), number of items, dtype, shape.
std::optional<Difference> find_difference(std::span<const Tree> values);
/// The same, but finds what is no number, and so is not reduced but must be equal. For values alike
/// in structure.
std::optional<Difference> find_unlike_leaf(std::span<const Tree> values);
/// Tensors, numbers and booleans get a leading axis over the ranks; text and null become lists.
Tree stack(std::span<const Tree> values);
/// Tensors, numbers and booleans are reduced over the ranks, in their order; what else there is, is
/// rank 0's. `label` begins sentences.
Tree fold(std::span<const Tree> values, const Reduction& reduction, bool truncate_mean,
          const std::string& label);

}  // namespace dlaunch::structure
