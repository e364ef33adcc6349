#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tree.hpp>

#include <optional>
#include <span>
#include <string>

/// Combines the ranks' structured values. Pure.
namespace dlaunch::structure {

/// A difference between a rank's value and rank 0's, with both descriptions: "a list of 2 items".
struct Difference {
  int rank = 0;
  std::string first, other;
  /// "their values differ in structure at '.layers[2]'".
  std::string sentence;
};

/// The first path at which a rank's value has another structure than rank 0's: kind, keys (in any
/// order), number of items, dtype, shape.
std::optional<Difference> find_difference(std::span<const Tree> values);
/// The same for values of equal structure: the first path at which items that are no numbers, and
/// so must be equal, differ.
std::optional<Difference> find_unlike_leaf(std::span<const Tree> values);
/// Tensors, numbers and booleans get a leading axis over the ranks; text and null become lists.
Tree stack(std::span<const Tree> values);
/// Tensors, numbers and booleans are reduced over the ranks, in their order; everything else is
/// rank 0's. `label` begins sentences.
Tree fold(std::span<const Tree> values, const Reduction& reduction, bool truncate_mean,
          const std::string& label);

}  // namespace dlaunch::structure
