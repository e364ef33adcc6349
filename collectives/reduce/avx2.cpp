#include "collectives/reduce/conversions.hpp"
#include "collectives/reduce/lanes.hpp"

namespace dlaunch::kernels {

Kernel find_avx2(ReduceOp op, DType dtype, Association association) {
  return find(op, dtype, association);
}

Conversions conversions_avx2(DType dtype) { return conversions(dtype); }

}  // namespace dlaunch::kernels
