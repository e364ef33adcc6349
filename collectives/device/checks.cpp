#include "collectives/device/checks.hpp"

#include "collectives/reduce/reduce.hpp"

namespace dlaunch::device {
namespace {

std::string place_text(const Place& place) {
  return place.is_host() ? "host memory" : "CUDA device " + std::to_string(place.cuda_device);
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
  if (!traits_of(reduction.op()).in_nccl) {
    lacks(call, "NCCL has no reduction by " + reduction.name() + instead);
  }
  if (sense_of(reduction.op(), dtype) == Sense::truncates) {
    lacks(call, std::string("NCCL adds elements of ") + to_string(dtype) +
                    " in their own type before it divides, and what does not fit is lost; cast "
                    "first to a floating-point type, or copy it to the host first");
  }
  if (reduction.is_canonical()) {
    lacks(call, "NCCL does not fold in the canonical order" + instead);
  }
}

}  // namespace dlaunch::device
