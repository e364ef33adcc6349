#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tree.hpp>

#include <span>
#include <string>

/// What the ranks' structured values become together. Pure.
namespace dlaunch::structure {

/// Throws Error{mismatch} that names the first path at which a rank's value has another structure
/// than rank 0's: kind, keys (in any order), number of items, dtype, shape. `label` begins the
/// sentence.
void check_alike(std::span<const Tree> values, const std::string& label);
/// Tensors, numbers and booleans get a leading axis over the ranks; text and null become lists.
Tree stack(std::span<const Tree> values);
/// Tensors, numbers and booleans are folded over the ranks, in their order.
Tree fold(std::span<const Tree> values, const Reduction& reduction, bool truncate_mean,
          const std::string& label);

}  // namespace dlaunch::structure
