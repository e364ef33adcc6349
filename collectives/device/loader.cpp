#include "collectives/device/loader.hpp"

#include "runtime/base/os/own_library.hpp"

#include <dlaunch/error.hpp>

#include <atomic>
#include <mutex>
#include <string>

namespace dlaunch::device {
namespace {

Library& load() {
  std::string why;
  auto* const entry =
      reinterpret_cast<Entry*>(own_library("libdlaunch_nccl.so.0", "dlaunch_device_library", why));
  if (entry == nullptr) {
    throw Error(Errc::unsupported,
                "this build has no CUDA support: " + why +
                    "; install it beside libdlaunch.so, or copy the buffer to the host first");
  }
  Library* const found = entry(DLAUNCH_VERSION, &why);
  if (found == nullptr) throw Error(Errc::unsupported, why);
  return *found;
}

}  // namespace

Library& library() {
  // No local static that load() initialises: if that throws, ThreadSanitizer leaves waiting threads
  // asleep.
  static std::mutex mutex;
  static std::atomic<Library*> loaded = nullptr;
  if (Library* const found = loaded.load(std::memory_order_acquire)) return *found;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) loaded = &load();
  return *loaded;
}

}  // namespace dlaunch::device
