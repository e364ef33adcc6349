#include "packaging/python-torch/extension/several.hpp"

#include "packaging/python-torch/extension/errors.hpp"

#include <string>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/div.h>

namespace dlaunch::torch_backend {
namespace {

void check_shape(const char* call, const at::Tensor& first, const at::Tensor& other) {
  check_types(call, first, other);
  if (first.sizes() == other.sizes()) return;
  refuse(std::string(call) + ": several tensors of a rank have one shape, and these have " +
         c10::str(first.sizes()) + " and " + c10::str(other.sizes()));
}

}  // namespace

std::vector<TensorView> alike_views_of(const char* call, const std::vector<at::Tensor>& tensors,
                                       Elements use) {
  if (tensors.empty()) check_count(call, "tensor", 0, 1);
  auto views = views_of(call, tensors, use);
  for (const at::Tensor& tensor : tensors) check_shape(call, tensors.front(), tensor);
  return views;
}

std::size_t index_of(const char* call, const std::vector<at::Tensor>& tensors, std::int64_t index) {
  const auto place = static_cast<std::size_t>(index);
  if (index >= 0 && place < tensors.size()) return place;
  refuse(std::string(call) + ": there is no tensor " + std::to_string(index) + " among " +
         std::to_string(tensors.size()));
}

Copies others_from(const std::vector<at::Tensor>& tensors, std::int64_t index) {
  Copies copies;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto from = static_cast<std::size_t>(index);
    if (i != from) copies.emplace_back(tensors[i], tensors[from]);
  }
  return copies;
}

void fold_into_first(const std::vector<at::Tensor>& tensors, const Reduction& reduction) {
  if (tensors.size() == 1) return;
  const bool is_sum = reduction.op() == ReduceOp::mean || reduction.op() == ReduceOp::premul_sum;
  const auto views = views_of("all_reduce", tensors, Elements::reduced);
  if (reduction.op() == ReduceOp::mean &&
      c10::isIntegralType(tensors.front().scalar_type(), false)) {
    refuse(
        "all_reduce: AVG of several tensors of integers would drop the fraction twice: cast first "
        "to a "
        "floating-point type, or sum and divide");
  }
  with_torch_errors([&] {
    for (std::size_t i = 1; i < views.size(); ++i) {
      reduce_local(views[i], views.front(), is_sum ? Reduction(ReduceOp::sum) : reduction);
    }
  });
  if (reduction.op() != ReduceOp::mean) return;
  const at::AutoDispatchBelowADInplaceOrView beside_autograd;
  at::Tensor first = tensors.front();
  first.div_(static_cast<std::int64_t>(tensors.size()));
}

void check_lists_alike(const char* call, const std::vector<std::vector<at::Tensor>>& lists,
                       Copies& copies) {
  for (std::size_t list = 1; list < lists.size(); ++list) {
    for (std::size_t i = 0; i < lists[list].size(); ++i) {
      check_shape(call, lists.front()[i], lists[list][i]);
      // Refuses what cannot be written.
      Copies unused;
      views_of(call, memory_for(call, {lists[list][i]}, unused));
      copies.emplace_back(lists[list][i], lists.front()[i]);
    }
  }
}

}  // namespace dlaunch::torch_backend
