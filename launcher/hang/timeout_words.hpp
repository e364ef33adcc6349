#pragma once

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// These lines, the last that a rank wrote before it failed, say that it has waited in vain: in a
/// collective of gloo's or NCCL's, or in PyTorch's store. Pure.
bool tells_timeout(const std::vector<std::string>& lines);

}  // namespace dlaunch::launcher
