#pragma once

#include <string>

namespace dlaunch::launcher {

/// How many GPUs NVIDIA's management library knows, which is loaded for that one question; 0 where
/// it cannot be loaded or asked. For hosts on which the driver has no files (WSL).
int count_gpus_by_nvml(const std::string& library);

}  // namespace dlaunch::launcher
