#include "launcher/nvml.hpp"

#include <memory>

#include <dlfcn.h>

namespace dlaunch::launcher {
namespace {

struct Close {
  void operator()(void* library) const { ::dlclose(library); }
};

/// As <nvml.h> declares them; nvmlReturn_t is an enumeration of which 0 is success.
using Plain = int();
using Count = int(unsigned*);

}  // namespace

int count_gpus_by_nvml(const std::string& library) {
  const std::unique_ptr<void, Close> nvml(::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL));
  if (nvml == nullptr) return 0;
  auto* const init = reinterpret_cast<Plain*>(::dlsym(nvml.get(), "nvmlInit_v2"));
  auto* const count = reinterpret_cast<Count*>(::dlsym(nvml.get(), "nvmlDeviceGetCount_v2"));
  auto* const shutdown = reinterpret_cast<Plain*>(::dlsym(nvml.get(), "nvmlShutdown"));
  if (init == nullptr || count == nullptr || shutdown == nullptr || init() != 0) return 0;
  unsigned found = 0;
  const bool told = count(&found) == 0;
  shutdown();
  return told ? static_cast<int>(found) : 0;
}

}  // namespace dlaunch::launcher
