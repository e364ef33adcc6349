#include "launcher/machine/nvml.hpp"

#include <memory>

#include <dlfcn.h>

namespace dlaunch::launcher {
namespace {

/// As <nvml.h> declares them; nvmlReturn_t is an enumeration of which 0 is success.
using Plain = int();
using Count = int(unsigned*);
using Device = void*;
using DeviceOfUuid = int(const char*, Device*);
using GpuOfMig = int(Device, Device*);
using UuidOf = int(Device, char*, unsigned);

constexpr unsigned uuid_bytes_max = 96;

/// The library, for as long as it is asked.
class Nvml {
 public:
#ifdef DLAUNCH_STATIC
  explicit Nvml(const std::string&) {}  // A static program cannot load what the driver brings.
#else
  explicit Nvml(const std::string& library)
      : library_(::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    auto* const init = find<Plain>("nvmlInit_v2");
    shutdown_ = find<Plain>("nvmlShutdown");
    ready_ = init != nullptr && shutdown_ != nullptr && init() == 0;
  }
#endif
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (ready_) shutdown_();
  }

  bool ready() const { return ready_; }
  template <class Function>
  Function* find(const char* name) const {
    if (library_ == nullptr) return nullptr;
    return reinterpret_cast<Function*>(::dlsym(library_.get(), name));
  }

 private:
  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };

  std::unique_ptr<void, Close> library_;
  Plain* shutdown_ = nullptr;
  bool ready_ = false;
};

}  // namespace

int count_gpus_by_nvml(const std::string& library) {
  const Nvml nvml(library);
  auto* const count = nvml.find<Count>("nvmlDeviceGetCount_v2");
  unsigned found = 0;
  return nvml.ready() && count != nullptr && count(&found) == 0 ? static_cast<int>(found) : 0;
}

std::vector<MigDevice> mig_devices_by_nvml(std::span<const std::string> devices,
                                           const std::string& library) {
  std::vector<std::string> migs;
  for (const auto& device : devices) {
    if (device.starts_with("MIG-") && !device.starts_with("MIG-GPU-")) migs.push_back(device);
  }
  if (migs.empty()) return {};
  const Nvml nvml(library);
  auto* const by_uuid = nvml.find<DeviceOfUuid>("nvmlDeviceGetHandleByUUID");
  auto* const gpu_of = nvml.find<GpuOfMig>("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  auto* const uuid_of = nvml.find<UuidOf>("nvmlDeviceGetUUID");
  if (!nvml.ready() || by_uuid == nullptr || gpu_of == nullptr || uuid_of == nullptr) return {};
  std::vector<MigDevice> known;
  for (const auto& name : migs) {
    Device mig = nullptr, gpu = nullptr;
    char uuid[uuid_bytes_max] = {};
    if (by_uuid(name.c_str(), &mig) != 0 || gpu_of(mig, &gpu) != 0) continue;
    if (uuid_of(gpu, uuid, sizeof uuid) == 0) known.push_back({name, uuid});
  }
  return known;
}

}  // namespace dlaunch::launcher
