#pragma once

#include <dlaunch/tensor.hpp>

#include <cstddef>

namespace dlaunch::training {

/// Writes the view's elements times `factor`, contiguous, to `to`, which may be where they are if
/// they are contiguous. 16-bit types are multiplied in f32. For dtypes that have a mean.
void scale(const ConstTensorView& from, std::byte* to, double factor);

}  // namespace dlaunch::training
