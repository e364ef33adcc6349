#pragma once

#include "collectives/nccl/nccl_api.hpp"

#include <cstddef>
#include <tuple>
#include <utility>
#include <vector>

/// One collective of the double of NCCL, and what it does once all ranks have come.
namespace dlaunch::nccl_double {

using nccl::NcclDType;
using nccl::NcclRedOp;

enum class What { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, recv };

struct Operation {
  What what{};
  // The memory's own addresses, not what the device calls it.
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  NcclDType dtype{};
  NcclRedOp op = 0;
  int peer = -1;
  double factor = 1;

  bool fits(const Operation& other) const {
    return std::tie(what, count, dtype, op, peer) ==
           std::tie(other.what, other.count, other.dtype, other.op, other.peer);
  }
};

/// One collective, for which all ranks come together.
struct Meeting {
  std::vector<std::pair<int, Operation>> come;
  bool done = false;
  int left = 0;  ///< Ranks that have seen that it is done.
};

std::size_t bytes_of(NcclDType dtype);

/// All have come, and agree. All results are made before any is written: buffers may be shared.
void finish(Meeting& meeting);

}  // namespace dlaunch::nccl_double
