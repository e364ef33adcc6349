#pragma once

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Whether these last lines of a failed rank say that it waited in vain: in a collective of gloo or
/// NCCL, or in PyTorch's store. Pure.
bool tells_timeout(const std::vector<std::string>& lines);

}  // namespace dlaunch::launcher
