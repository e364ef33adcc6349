#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/world.hpp>

#include <cstdint>
#include <string>

namespace dlaunch {

/// What a process knows about itself and its job, for people and scripts: the same thirteen fields,
/// with the same names, that PyTorch programs print. A plain value.
struct DLAUNCH_API ProcessInfo {
  std::string master_addr;
  std::string master_port;  ///< Text, as in the environment; empty in a world without an address.
  int nnodes = 1;
  int nproc_per_node = 1;  ///< On this process's node.
  int node_rank = 0;
  int world_size = 1;
  std::string backend = "dlaunch";
  std::string init_method;  ///< The URL really used.
  int global_rank = 0;
  int local_world_size = 1;
  int local_rank = 0;
  std::string hostname;
  std::int64_t process_id = 0;

  /// Describes this process as a rank of `world`.
  static ProcessInfo of(const World& world);
  /// The fields in the order above; `indent` spaces a level, or all in one line if negative.
  std::string to_json(int indent = 4) const;
  bool operator==(const ProcessInfo&) const = default;
};

}  // namespace dlaunch
