#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

/// Tensors as the library sees them. Whatever it cannot see so is refused in a sentence that begins
/// with the call's name.
namespace dlaunch::torch_backend {

/// What a call does with elements: those that only travel may be of types without arithmetic.
enum class Elements { moved, reduced };

/// The memory of `tensor`, which has to be dense, on the host and in row-major order.
TensorView view_of(const char* call, const at::Tensor& tensor, Elements use = Elements::moved);
std::vector<TensorView> views_of(const char* call, const std::vector<at::Tensor>& tensors,
                                 Elements use = Elements::moved);
std::vector<ConstTensorView> read_only(const std::vector<TensorView>& views);
/// The same for a call that only reads them.
std::vector<ConstTensorView> read_views_of(const char* call, const std::vector<at::Tensor>& tensors,
                                           Elements use = Elements::moved);

/// For a call that only reads it: the tensor, or a copy in row-major order where its elements lie
/// otherwise, as gloo has it.
at::Tensor in_order(const char* call, const at::Tensor& tensor);
std::vector<at::Tensor> in_order(const char* call, const std::vector<at::Tensor>& tensors);
/// Results that a call writes elsewhere: each one's tensor, and the memory to copy it from once the
/// call is complete.
using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;
/// For a list of tensors that a call only writes: the tensors, or memory in row-major order for
/// those whose elements lie otherwise, which then stand in `copies`.
std::vector<at::Tensor> memory_for(const char* call, const std::vector<at::Tensor>& results,
                                   Copies& copies);
/// The inputs, or copies of those that share their memory with an output.
std::vector<at::Tensor> apart_from(const char* call, const std::vector<at::Tensor>& outputs,
                                   const std::vector<at::Tensor>& inputs);

// What the library would refuse, too, but not before it has told the other ranks, whose calls
// fail then.
/// What a rank gives itself is as long as what it takes from itself.
void check_own_part(const char* call, std::size_t given, std::size_t taken);
/// What is written lies apart from all else; only the rank's own part may be where it is written.
void check_apart(const char* call, const std::vector<ConstTensorView>& read,
                 const std::vector<ConstTensorView>& written, const void* own_read,
                 const void* own_written);

/// The one tensor of a list of one.
const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors);
const std::vector<at::Tensor>& only(const char* call,
                                    const std::vector<std::vector<at::Tensor>>& lists);
/// `count` tensors, one for each of something.
void check_count(const char* call, const char* what, std::size_t count, std::size_t wanted);
/// All of one element type.
void check_types(const char* call, const at::Tensor& first, const at::Tensor& other);

/// For elements of that type: AVG of bool, and MIN of complex numbers, have no meaning.
Reduction reduction_of(const char* call, const c10d::ReduceOp& op, at::ScalarType type);

}  // namespace dlaunch::torch_backend
