#pragma once

#include "collectives/device/library.hpp"

namespace dlaunch::device {

/// The process's device library, libdlaunch_nccl.so; loaded by the first call that succeeds, for
/// good. Throws Error{unsupported} with what is lacking.
Library& library();

}  // namespace dlaunch::device
