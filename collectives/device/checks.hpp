#pragma once

#include "collectives/call/checks.hpp"

#include <cstddef>
#include <string>

/// What a call with buffers on a device asks of its arguments beyond what every call asks; each
/// throws Error{misuse}, or Error{unsupported} for what NCCL lacks. Pure.
namespace dlaunch::device {

[[noreturn]] void lacks(const Call& call, const std::string& sentence);

/// A buffer that a rank has nothing to say with.
inline bool is_absent(const ConstTensorView& view) {
  return view.place.is_host() && view.count == 0;
}
/// `view` lies on `device`, one element after the other; or has none.
void check_place(const Call& call, int device, const ConstTensorView& view);
/// NCCL has this reduction, for this type.
void check_reduction(const Call& call, const Reduction& reduction, DType dtype, bool truncate_mean);

}  // namespace dlaunch::device
