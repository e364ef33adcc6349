#include <cstdlib>

/// A test double of NVIDIA's management library, libnvidia-ml.so.1: as many GPUs as
/// DLAUNCH_DOUBLE_GPUS says; without it, it cannot be used, as where the driver is not loaded.
extern "C" {

static int users = 0;

int nvmlInit_v2() {
  if (std::getenv("DLAUNCH_DOUBLE_GPUS") == nullptr) return 9;  // NVML_ERROR_DRIVER_NOT_LOADED
  ++users;
  return 0;
}
int nvmlShutdown() { return users-- > 0 ? 0 : 1; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  if (users == 0) return 1;  // NVML_ERROR_UNINITIALIZED
  *count = static_cast<unsigned>(std::atoi(std::getenv("DLAUNCH_DOUBLE_GPUS")));
  return 0;
}

}  // extern "C"
