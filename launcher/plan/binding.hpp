#pragma once

#include "launcher/machine/topology.hpp"
#include "launcher/request/job_spec.hpp"
#include "launcher/request/option_values.hpp"

#include <span>
#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// The cores of each worker, by local rank, each list sorted; or why that cannot be. A pure
/// function.
///
/// If every worker can have one of the GPUs in `visible_gpus` (as visible_gpus() gives them), it is
/// bound beside the GPU whose index is its local rank, as torchrun does it. Else the workers are
/// spread evenly over the physical cores, and each belongs to the node where its share begins.
Read<std::vector<std::vector<int>>> bind_workers(const Topology& topology, Binding mode,
                                                 int workers,
                                                 std::span<const std::string> visible_gpus);

}  // namespace dlaunch::launcher
