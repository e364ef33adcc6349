#pragma once

#include "collectives/call/checks.hpp"

#include <cstddef>
#include <string>

/// Additional checks of a call with buffers on a device; each throws Error{misuse}, or
/// Error{unsupported} for things that NCCL lacks. Pure.
namespace dlaunch::device {

[[noreturn]] void lacks(const Call& call, const std::string& sentence);

/// A buffer that this rank does not use.
inline bool is_absent(const ConstTensorView& view) {
  return view.place.is_host() && view.count == 0;
}
/// `view` lies on `device`, one element after the other; or has none.
void check_place(const Call& call, int device, const ConstTensorView& view);
/// NCCL has this reduction, for this type.
void check_reduction(const Call& call, const Reduction& reduction, DType dtype, bool truncate_mean);

}  // namespace dlaunch::device
