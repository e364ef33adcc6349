#include "packaging/python-torch/extension/tensors.hpp"

#include "packaging/python-torch/extension/errors.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

namespace dlaunch::torch_backend {
namespace {

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return DType::u8;
    case at::kChar:
      return DType::i8;
    case at::kShort:
      return DType::i16;
    case at::kInt:
      return DType::i32;
    case at::kLong:
      return DType::i64;
    case at::kUInt16:
      return DType::u16;
    case at::kUInt32:
      return DType::u32;
    case at::kUInt64:
      return DType::u64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kBool:
      return DType::boolean;
    case at::kComplexFloat:
      return DType::c64;
    case at::kComplexDouble:
      return DType::c128;
    default:
      return std::nullopt;
  }
}

/// The beginning and the end of the memory of a dense tensor on the host.
using Memory = std::pair<std::uintptr_t, std::uintptr_t>;

std::optional<Memory> memory_of(const at::Tensor& tensor) {
  const bool has_memory = tensor.defined() && tensor.layout() == at::kStrided &&
                          tensor.device().is_cpu() && tensor.numel() > 0;
  if (!has_memory) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return Memory{begin, begin + tensor.nbytes()};
}

[[noreturn]] void refuse_type(const char* call, const at::Tensor& tensor, Elements use) {
  const std::string type = c10::toString(tensor.scalar_type());
  const std::string what = use == Elements::reduced ? " cannot reduce elements of type "
                                                    : " cannot send elements of type ";
  refuse(std::string(call) + ": dlaunch" + what + type +
         "; it has uint8 to uint64, int8 to int64, float16, bfloat16, float32, float64, bool, "
         "complex64 and complex128");
}

void check_place(const char* call, const at::Tensor& tensor) {
  const std::string name = call;
  if (!tensor.defined()) refuse(name + ": this tensor is not defined");
  if (tensor.layout() != at::kStrided) {
    refuse(name +
           ": this tensor is sparse, and dlaunch moves dense ones; pass tensor.to_dense(), "
           "or its values and indices");
  }
  if (!tensor.device().is_cpu()) {
    refuse(name + ": this tensor is on " + tensor.device().str() +
           ", and the backend dlaunch is for tensors on the host; have "
           "init_process_group(\"cpu:dlaunch,cuda:nccl\") serve both");
  }
  if (!tensor.is_contiguous()) {
    refuse(name +
           ": Tensors must be contiguous, and the elements of this one do not lie side by side, in "
           "row-major order; pass tensor.contiguous()");
  }
}

}  // namespace

TensorView view_of(const char* call, const at::Tensor& tensor, Elements use) {
  check_place(call, tensor);
  // An empty tensor may have no memory.
  void* const data = tensor.numel() > 0 ? tensor.data_ptr() : nullptr;
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (const auto type = dtype_of(tensor.scalar_type())) return {data, count, *type};
  if (use == Elements::reduced || tensor.is_quantized()) refuse_type(call, tensor, use);
  return {data, count * tensor.element_size(), DType::u8};
}

std::vector<TensorView> views_of(const char* call, const std::vector<at::Tensor>& tensors,
                                 Elements use) {
  std::vector<TensorView> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    check_types(call, tensors.front(), tensor);
    views.push_back(view_of(call, tensor, use));
  }
  return views;
}

std::vector<ConstTensorView> read_views_of(const char* call, const std::vector<at::Tensor>& tensors,
                                           Elements use) {
  const auto views = views_of(call, tensors, use);
  return std::vector<ConstTensorView>(views.begin(), views.end());
}

at::Tensor in_order(const at::Tensor& tensor) {
  // Any other is refused by view_of.
  const bool has_order = tensor.defined() && tensor.layout() == at::kStrided;
  return has_order ? tensor.contiguous() : tensor;
}

std::vector<at::Tensor> in_order(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  all.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) all.push_back(in_order(tensor));
  return all;
}

std::vector<at::Tensor> memory_for(const std::vector<at::Tensor>& results, Copies& copies) {
  std::vector<at::Tensor> all;
  all.reserve(results.size());
  for (const at::Tensor& result : results) {
    const bool has_order = result.defined() && result.layout() == at::kStrided;
    if (!has_order || result.is_contiguous()) {
      all.push_back(result);
      continue;
    }
    all.push_back(at::empty(result.sizes(), result.options()));
    copies.emplace_back(result, all.back());
  }
  return all;
}

std::vector<at::Tensor> apart_from(const std::vector<at::Tensor>& outputs,
                                   const std::vector<at::Tensor>& inputs) {
  std::vector<Memory> written;
  for (const at::Tensor& output : outputs) {
    if (const auto memory = memory_of(output)) written.push_back(*memory);
  }
  std::sort(written.begin(), written.end());
  std::vector<at::Tensor> all;
  all.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    const auto memory = memory_of(input);
    // Outputs do not overlap, or the call is refused: only the last that begins before its end can.
    const auto behind = memory ? std::lower_bound(written.begin(), written.end(),
                                                  Memory{memory->second, memory->second})
                               : written.begin();
    const bool is_shared = behind != written.begin() && std::prev(behind)->second > memory->first;
    all.push_back(is_shared ? input.clone() : input);
  }
  return all;
}

const at::Tensor& only(const char* call, const std::vector<at::Tensor>& tensors) {
  check_count(call, "tensor", tensors.size(), 1);
  return tensors.front();
}

const std::vector<at::Tensor>& only(const char* call,
                                    const std::vector<std::vector<at::Tensor>>& lists) {
  check_count(call, "list of tensors", lists.size(), 1);
  return lists.front();
}

void check_count(const char* call, const char* what, std::size_t count, std::size_t wanted) {
  if (count == wanted) return;
  refuse(std::string(call) + ": it takes " + std::to_string(wanted) + " " + what +
         (wanted == 1 ? "" : "s") + " here, and was given " + std::to_string(count));
}

void check_types(const char* call, const at::Tensor& first, const at::Tensor& other) {
  if (!first.defined() || !other.defined() || first.scalar_type() == other.scalar_type()) return;
  refuse(std::string(call) + ": the tensors of one call have one element type, and these have " +
         c10::toString(first.scalar_type()) + " and " + c10::toString(other.scalar_type()));
}

Reduction reduction_of(const char* call, const c10d::ReduceOp& op) {
  using Op = c10d::ReduceOp;
  switch (static_cast<Op::RedOpType>(op)) {
    case Op::SUM:
      return ReduceOp::sum;
    case Op::AVG:
      return ReduceOp::mean;
    case Op::PRODUCT:
      return ReduceOp::product;
    case Op::MIN:
      return ReduceOp::min;
    case Op::MAX:
      return ReduceOp::max;
    case Op::BAND:
      return ReduceOp::band;
    case Op::BOR:
      return ReduceOp::bor;
    case Op::BXOR:
      return ReduceOp::bxor;
    case Op::PREMUL_SUM: {
      const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (factor == nullptr) break;
      const at::Tensor& tensor = factor->tensor_factor;
      return Reduction::premul_sum(tensor.defined() ? tensor.item<double>()
                                                    : factor->double_factor);
    }
    case Op::UNUSED:
      break;
  }
  refuse(std::string(call) + ": this reduction is none that dlaunch knows");
}

}  // namespace dlaunch::torch_backend
