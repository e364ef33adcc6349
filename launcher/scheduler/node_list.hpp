#pragma once

#include "launcher/request/option_values.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// More nodes than this are taken for a mistake, here as in --nnodes.
inline constexpr int listed_nodes_max = 100'000;

/// The names in a list as Slurm writes it: "node[01-03,07],gpu1" is node01, node02, node03, node07
/// and gpu1; "r[0-1]n[0-1]" is r0n0, r0n1, r1n0 and r1n1. In the order written.
Read<std::vector<std::string>> read_node_list(std::string_view text);

}  // namespace dlaunch::launcher
