#pragma once

#include <dlaunch/gradient_reducer.hpp>

#include <cstddef>
#include <span>
#include <vector>

/// Decides which gradients are summed together. Pure.
namespace dlaunch::training {

/// Parameters in the order in which gradients become ready, as far as that is known before the
/// first iteration: from the last to the first.
std::vector<std::size_t> guessed_order(std::size_t parameters);

/// Fills buckets in this order. Each dtype has its own buckets, and each bucket is filled until it
/// has as many bytes as its limit. Buckets are in the order in which their last gradient becomes
/// ready. Every parameter of `order` is in one of them.
std::vector<std::vector<std::size_t>> plan_buckets(std::span<const Parameter> parameters,
                                                   std::span<const std::size_t> order,
                                                   std::size_t first_bytes, std::size_t bytes);

}  // namespace dlaunch::training
