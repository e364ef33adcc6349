#pragma once

#include <span>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// A core as the scheduler counts them: a hardware thread.
struct LogicalCore {
  int number = 0;
  int node = 0;  ///< NUMA node.
  int socket = 0;
  int core = 0;    ///< The lowest number among the hardware threads of its physical core.
  int cache = -1;  ///< The lowest number among those that share its last cache; -1: unknown.

  bool operator==(const LogicalCore&) const = default;
};

struct GpuPlace {
  std::string uuid;  ///< "GPU-..."; empty where the driver does not tell.
  int node = 0;

  bool operator==(const GpuPlace&) const = default;
};

/// A part of a GPU, under the name that CUDA_VISIBLE_DEVICES has for it.
struct MigDevice {
  std::string uuid;      ///< "MIG-...", which tells nothing of the GPU.
  std::string gpu_uuid;  ///< "GPU-...".

  bool operator==(const MigDevice&) const = default;
};

/// How a host is built, as far as --bind needs it. A plain value.
struct Topology {
  std::vector<LogicalCore> cores;  ///< Those that may be used, by number.
  std::vector<GpuPlace> gpus;  ///< In the order of their PCI addresses, as CUDA counts equal ones.
  std::vector<MigDevice> mig_devices;  ///< Those that were asked for; mig_devices_by_nvml().

  bool operator==(const Topology&) const = default;
};

/// Reads this host, for the cores in `allowed`. Never throws: what cannot be read is one node, one
/// socket. `root` is put before /proc, /sys and /dev, for tests.
Topology read_topology(std::span<const int> allowed, const std::string& root = {});

/// "0-3,8" as a sorted list; what is no number is left out.
std::vector<int> read_core_list(std::string_view text);

}  // namespace dlaunch::launcher
