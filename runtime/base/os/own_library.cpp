#include "runtime/base/os/own_library.hpp"

#include <filesystem>
#include <system_error>

#include <dlfcn.h>
#include <link.h>

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

/// The file that this code lies in: a program, or libdlaunch.so.
fs::path own_file() {
  Dl_info info{};
  link_map* object = nullptr;
  const auto* const here = reinterpret_cast<const void*>(&own_file);
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  std::error_code unknown;
  // The loader has no name for the program itself.
  return *object->l_name != '\0' ? fs::path(object->l_name)
                                 : fs::read_symlink("/proc/self/exe", unknown);
}

std::string place_of(const char* file) {
  const fs::path folder = own_file().parent_path();
  std::error_code unknown;
  for (const char* place : {".", "../lib", "../" DLAUNCH_LIBDIR}) {
    const fs::path candidate = folder / place / file;
    if (!folder.empty() && fs::exists(candidate, unknown)) return candidate.string();
  }
  return file;
}

}  // namespace

void* own_library(const char* file, const char* entry, std::string& why) {
  void* const handle = ::dlopen(place_of(file).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    why = std::string(file) +
          " cannot be loaded: " + (reason != nullptr ? reason : "no reason given");
    return nullptr;
  }
  void* const function = ::dlsym(handle, entry);
  if (function == nullptr) why = std::string(file) + " is not dlaunch's";
  return function;
}

}  // namespace dlaunch
