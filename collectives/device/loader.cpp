#include "collectives/device/loader.hpp"

#include <dlaunch/error.hpp>

#include <string>

#include <dlfcn.h>

namespace dlaunch::device {
namespace {

constexpr const char* file_name = "libdlaunch_nccl.so.0";

std::string beside_this_code() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&file_name), &info) == 0) return {};
  if (info.dli_fname == nullptr) return {};
  const std::string file = info.dli_fname;
  const auto slash = file.rfind('/');
  return slash == std::string::npos ? std::string{} : file.substr(0, slash + 1) + file_name;
}

Library& load() {
  void* handle = nullptr;
  if (const std::string file = beside_this_code(); !file.empty()) {
    handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) handle = ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    throw Error(Errc::unsupported,
                std::string("this build has no CUDA support: ") + file_name +
                    " cannot be loaded: " + (reason != nullptr ? reason : "no reason given") +
                    "; install it beside libdlaunch.so, or copy the buffer to the host first");
  }
  auto* const entry = reinterpret_cast<Entry*>(::dlsym(handle, "dlaunch_device_library"));
  std::string why = std::string(file_name) + " is not dlaunch's";
  Library* const found = entry != nullptr ? entry(DLAUNCH_VERSION, &why) : nullptr;
  if (found == nullptr) throw Error(Errc::unsupported, why);
  return *found;
}

}  // namespace

Library& library() {
  static Library& loaded = load();
  return loaded;
}

}  // namespace dlaunch::device
