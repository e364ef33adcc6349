#pragma once

#include "collectives/call/checks.hpp"

#include <cstddef>
#include <string>

/// What a call with buffers on a device asks of its arguments beyond what every call asks; each
/// throws Error{misuse}, or Error{unsupported} for what NCCL lacks. Pure.
namespace dlaunch::device {

[[noreturn]] void lacks(const Call& call, const std::string& sentence);

/// `view` lies on `device`, one element after the other; or has none.
void check_place(const Call& call, int device, const ConstTensorView& view);
/// `other` is a view like `view`, of `count` elements.
void check_both(const Call& call, int device, const ConstTensorView& view,
                const ConstTensorView& other, std::size_t count);
/// NCCL has this reduction, for this type.
void check_reduction(const Call& call, const Reduction& reduction, DType dtype, bool truncate_mean);

}  // namespace dlaunch::device
