#include "collectives/device/loader.hpp"

#include "runtime/base/os/own_library.hpp"

#include <dlaunch/error.hpp>

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
  static Library& loaded = load();
  return loaded;
}

}  // namespace dlaunch::device
