#include <cstdlib>
#include <cstring>

/// A test double of NVIDIA's management library, libnvidia-ml.so.1: as many GPUs as
/// DLAUNCH_DOUBLE_GPUS says; without it, it cannot be used, as where the driver is not loaded. The
/// MIG devices "MIG-1a" and "MIG-1b" are parts of "GPU-1abc", "MIG-2a" is one of "GPU-2abc".
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
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (users == 0) return 1;
  static char one[] = "GPU-1abc", two[] = "GPU-2abc";
  const bool is_of_one = std::strcmp(uuid, "MIG-1a") == 0 || std::strcmp(uuid, "MIG-1b") == 0;
  *device = is_of_one ? one : two;
  return is_of_one || std::strcmp(uuid, "MIG-2a") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
/// The handle of a device is its GPU's UUID.
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* mig, void** gpu) {
  *gpu = mig;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  const auto* const text = static_cast<const char*>(device);
  if (std::strlen(text) >= length) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  std::strcpy(uuid, text);
  return 0;
}

}  // extern "C"
