#pragma once

#include "collectives/nccl/cuda_api.hpp"
#include "collectives/nccl/nccl_api.hpp"

#include <string>

/// libcuda and libnccl, loaded by dlopen when the first CUDA buffer comes. They stay.
namespace dlaunch::nccl {

/// Why a library cannot be used.
struct Lacking {
  std::string sentence;
};

/// DLAUNCH_CUDA_LIBRARY names another file than libcuda.so.1. Throws Lacking.
CudaApi load_cuda();
/// DLAUNCH_NCCL_LIBRARY names another file than libnccl.so.2, of which the process may have one
/// already, PyTorch's for instance. `file` becomes the one that was loaded. Throws Lacking.
NcclApi load_nccl(std::string& file, int& version);
/// "2.27.3".
std::string version_text(int version);

}  // namespace dlaunch::nccl
