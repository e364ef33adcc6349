#include "collectives/reduce/conversions.hpp"
#include "collectives/reduce/lanes.hpp"

namespace dlaunch::kernels {

Kernel find_avx512(ReduceOp op, DType dtype, Association association) {
  return find(op, dtype, association);
}

Conversions conversions_avx512(DType dtype) { return conversions(dtype); }

}  // namespace dlaunch::kernels
