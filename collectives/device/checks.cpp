#include "collectives/device/checks.hpp"

#include "collectives/reduce/element_types.hpp"
#include "collectives/reduce/reduce.hpp"

namespace dlaunch::device {
namespace {

std::string place_text(const Place& place) {
  return place.is_host() ? "host memory" : "CUDA device " + std::to_string(place.cuda_device);
}

bool has_operation(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::mean:
    case ReduceOp::premul_sum:
      return true;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::custom:
      return false;
  }
  return false;
}

}  // namespace

void lacks(const Call& call, const std::string& sentence) {
  throw Error(Errc::unsupported, call.label() + ": " + sentence + call.where());
}

void check_place(const Call& call, int device, const ConstTensorView& view) {
  if (is_absent(view)) return;
  check_view(call, view);
  require(call, view.place.cuda_device == device, [&] {
    return "one buffer lies in " + place_text(Place{device}) + ", the other in " +
           place_text(view.place) + ": both lie in the same place";
  });
  if (view.stride != 1 && view.count > 1) {
    lacks(call, "a CUDA buffer with a stride of " + std::to_string(view.stride) +
                    " is not packed; make it contiguous first");
  }
}

void check_reduction(const Call& call, const Reduction& reduction, DType dtype,
                     bool truncate_mean) {
  if (const auto objection = Reducer::objection(reduction, dtype, truncate_mean)) {
    refuse(call, *objection);
  }
  const std::string instead = "; copy it to the host first";
  if (!element_type(dtype).in_nccl) {
    lacks(call, std::string("NCCL has no arithmetic for ") + to_string(dtype) + instead);
  }
  if (!has_operation(reduction.op())) {
    lacks(call, "NCCL has no reduction by " + reduction.name() + instead);
  }
  // Which is objected to where fractions are not dropped.
  const bool of_integers = Reducer::objection(reduction, dtype, false).has_value();
  if (reduction.op() == ReduceOp::mean && of_integers) {
    lacks(call, std::string("NCCL adds elements of ") + to_string(dtype) +
                    " in their own type before it divides, and what does not fit is lost; cast "
                    "first to a floating-point type, or copy it to the host first");
  }
  if (reduction.is_canonical()) {
    lacks(call, "NCCL does not fold in the canonical order" + instead);
  }
}

}  // namespace dlaunch::device
