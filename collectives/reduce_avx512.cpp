#include "collectives/reduce_lanes.hpp"

namespace dlaunch::kernels {

Kernel find_avx512(ReduceOp op, DType dtype, Association association) {
  return find(op, dtype, association);
}

}  // namespace dlaunch::kernels
