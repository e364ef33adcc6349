#pragma once

#include "launcher/machine/topology.hpp"
#include "runtime/segment/processors.hpp"

#include <string>

namespace dlaunch::launcher {

/// This host's offer to workers. A plain value, so that every decision on it can be tested.
struct Machine {
  std::string hostname;
  int usable_cores = 1;  ///< Allowed by the affinity mask and by the cgroup's cpu.max; at least 1.
  /// How usable_cores came about: "4 in the affinity mask, 2 by the cgroup's cpu.max".
  std::string cores_reason;
  Processors processors = {};  ///< Source of usable_cores, which rounds a quota down.
  bool colours = false;        ///< Our stdout and stderr are terminals that show them.
  int gpus = 0;                ///< NVIDIA devices the driver shows; CUDA is not asked.
  std::string python = {};     ///< The one of dlaunch's own environment; empty: PATH's.
  /// Read only for --bind, since it takes many files.
  Topology topology = {};

  bool operator==(const Machine&) const = default;
};

/// Reads this host. Never throws: what cannot be read does not limit. `root` is put before /proc,
/// /sys and /dev, and `nvml` is another management library, for tests.
Machine read_machine(const std::string& root = {}, const std::string& nvml = "libnvidia-ml.so.1");

}  // namespace dlaunch::launcher
