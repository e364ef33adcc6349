#pragma once

#include "packaging/python-torch/extension/tensors.hpp"

#include <dlaunch/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

/// Calls in which a rank has several tensors, as gloo takes them: one of them is the library's, and
/// the others are reduced into it before, or copied from it afterwards.
namespace dlaunch::torch_backend {

/// Views of one tensor or more, all of one type and shape.
std::vector<TensorView> alike_views_of(const char* call, const std::vector<at::Tensor>& tensors,
                                       Elements use = Elements::moved);
/// `index`, if there is such a tensor.
std::size_t index_of(const char* call, const std::vector<at::Tensor>& tensors, std::int64_t index);
/// The other tensors become what that one is.
Copies others_from(const std::vector<at::Tensor>& tensors, std::int64_t index);
/// The first becomes this rank's part of the reduction.
void fold_into_first(const std::vector<at::Tensor>& tensors, const Reduction& reduction);
/// All lists become what the first is.
void check_lists_alike(const char* call, const std::vector<std::vector<at::Tensor>>& lists,
                       Copies& copies);

}  // namespace dlaunch::torch_backend
