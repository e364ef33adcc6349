#pragma once

#include "launcher/machine/topology.hpp"

#include <span>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// How many GPUs NVIDIA's management library knows, which is loaded for that one question; 0 where
/// it cannot be loaded or asked. For hosts on which the driver has no files (WSL).
int count_gpus_by_nvml(const std::string& library);

/// Finds the GPU of each MIG device among these names ("MIG-" and a UUID); those that the library
/// does not know are left out. It is loaded only where there is one.
std::vector<MigDevice> mig_devices_by_nvml(std::span<const std::string> devices,
                                           const std::string& library = "libnvidia-ml.so.1");

}  // namespace dlaunch::launcher
