#include "packaging/python-torch/extension/tensors.hpp"

#include "packaging/python-torch/extension/errors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include <ATen/EmptyTensor.h>

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
    refuse_unsupported(name +
                       ": this tensor is sparse, and dlaunch moves dense ones; pass "
                       "tensor.to_dense(), or its values and indices");
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

/// A tensor whose storage was freed, or cut, keeps its shape.
void check_memory(const char* call, const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.has_storage()) return;
  const std::size_t needed =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                       static_cast<std::size_t>(tensor.storage_offset()));
  const std::size_t there = tensor.storage().nbytes();
  if (needed <= there) return;
  refuse(std::string(call) + ": the memory of this tensor was freed: its " +
         std::to_string(tensor.numel()) +
         (tensor.numel() == 1 ? " element takes " : " elements take ") + std::to_string(needed) +
         " bytes, and its storage has " + std::to_string(there));
}

bool is_readable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu();
}

/// Why the reduction means nothing for elements of that type; nullptr if it does.
const char* objection_to(c10d::ReduceOp::RedOpType op, at::ScalarType type) {
  using Op = c10d::ReduceOp;
  const bool is_whole = c10::isIntegralType(type, /*includeBool=*/true);
  switch (op) {
    case Op::AVG:
      if (type == at::kBool) return "makes no sense: cast first to a floating-point type";
      break;
    case Op::PREMUL_SUM:
      if (is_whole) return "makes no sense: cast first to a floating-point type";
      break;
    case Op::MIN:
    case Op::MAX:
      if (c10::isComplexType(type)) return "makes no sense: complex numbers have no order";
      break;
    case Op::BAND:
    case Op::BOR:
    case Op::BXOR:
      if (!is_whole) return "makes no sense: bitwise operations are for integers and bool";
      break;
    case Op::SUM:
    case Op::PRODUCT:
    case Op::UNUSED:
      break;
  }
  return nullptr;
}

/// By torch's numbers.
constexpr std::array op_names = {"SUM",  "AVG", "PRODUCT", "MIN",        "MAX",
                                 "BAND", "BOR", "BXOR",    "PREMUL_SUM", "UNUSED"};

Memory memory_of(const ConstTensorView& view) {
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  return {begin, begin + view.bytes()};
}

}  // namespace

TensorView view_of(const char* call, const at::Tensor& tensor, Elements use) {
  check_place(call, tensor);
  check_memory(call, tensor);
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
  return read_only(views_of(call, tensors, use));
}

std::vector<ConstTensorView> read_only(const std::vector<TensorView>& views) {
  return std::vector<ConstTensorView>(views.begin(), views.end());
}

at::Tensor in_order(const char* call, const at::Tensor& tensor) {
  if (!is_readable(tensor)) return tensor;  // Refused by view_of.
  check_memory(call, tensor);
  return tensor.contiguous();
}

std::vector<at::Tensor> in_order(const char* call, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  all.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) all.push_back(in_order(call, tensor));
  return all;
}

std::vector<at::Tensor> memory_for(const char* call, const std::vector<at::Tensor>& results,
                                   Copies& copies) {
  std::vector<at::Tensor> all;
  all.reserve(results.size());
  for (const at::Tensor& result : results) {
    if (!is_readable(result) || result.is_contiguous()) {
      all.push_back(result);
      continue;
    }
    check_memory(call, result);
    all.push_back(at::empty(result.sizes(), result.options()));
    copies.emplace_back(result, all.back());
  }
  return all;
}

std::vector<at::Tensor> apart_from(const char* call, const std::vector<at::Tensor>& outputs,
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
    if (is_shared) check_memory(call, input);
    all.push_back(is_shared ? input.clone() : input);
  }
  return all;
}

void check_own_part(const char* call, std::size_t given, std::size_t taken) {
  if (given == taken) return;
  refuse(std::string(call) + ": this rank gives itself " + std::to_string(given) +
         (given == 1 ? " element" : " elements") + ", and takes " + std::to_string(taken));
}

void check_apart(const char* call, const std::vector<ConstTensorView>& read,
                 const std::vector<ConstTensorView>& written, const void* own_read,
                 const void* own_written) {
  std::vector<Memory> all;
  for (const auto& view : written) {
    if (view.count > 0) all.push_back(memory_of(view));
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].first < all[i - 1].second) {
      refuse(std::string(call) + ": results overlap; they have to lie apart");
    }
  }
  for (const auto& view : read) {
    const Memory memory = memory_of(view);
    const auto behind =
        std::lower_bound(all.begin(), all.end(), Memory{memory.second, memory.second});
    if (view.count == 0 || behind == all.begin() || std::prev(behind)->second <= memory.first) {
      continue;
    }
    const auto own = reinterpret_cast<std::uintptr_t>(own_read);
    if (own_read == own_written && own >= memory.first && own < memory.second) continue;
    refuse(std::string(call) +
           ": what is read and what is written overlap; only this rank's own part may be where it "
           "is written");
  }
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

Reduction reduction_of(const char* call, const c10d::ReduceOp& op, at::ScalarType type) {
  using Op = c10d::ReduceOp;
  const auto kind = static_cast<Op::RedOpType>(op);
  if (const char* const why = objection_to(kind, type)) {
    refuse(std::string(call) + ": " + op_names.at(kind) + " of " + c10::toString(type) +
           " elements " + why);
  }
  switch (kind) {
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
