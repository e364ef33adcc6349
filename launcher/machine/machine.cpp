#include "launcher/machine/machine.hpp"

#include "launcher/machine/nvml.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include <unistd.h>

namespace dlaunch::launcher {

namespace {

namespace fs = std::filesystem;

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

/// How many entries of a directory `counts` accepts; 0 where it cannot be read.
template <class Predicate>
int count_entries(const std::string& directory, Predicate counts) {
  int found = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (counts(at->path().filename().string())) ++found;
  }
  return found;
}

/// Device files are counted first: a container sees the ones it was given, while /proc shows the
/// host's. If the driver is loaded but has made no files yet, /proc has the number. WSL has
/// neither, so there the management library is asked; nowhere else, since it may load the driver.
int count_gpus(const std::string& root, const std::string& nvml) {
  const auto exists = [&](const char* file) { return ::access((root + file).c_str(), F_OK) == 0; };
  if (!exists("/dev/nvidiactl")) return exists("/dev/dxg") ? count_gpus_by_nvml(nvml) : 0;
  const int devices = count_entries(root + "/dev", [](std::string_view name) {
    return name.starts_with("nvidia") && is_number(name.substr(6));
  });
  if (devices > 0) return devices;
  return count_entries(root + "/proc/driver/nvidia/gpus", [](std::string_view) { return true; });
}

}  // namespace

Machine read_machine(const std::string& root, const std::string& nvml) {
  Machine machine;
  char hostname[256] = {};
  if (::gethostname(hostname, sizeof hostname - 1) == 0) machine.hostname = hostname;
  if (machine.hostname.empty()) machine.hostname = "localhost";
  machine.processors = read_processors(root);
  machine.usable_cores = machine.processors.allowed;
  machine.cores_reason = std::to_string(machine.usable_cores) + " in the affinity mask";
  if (const auto quota = machine.processors.quota; quota && *quota < machine.usable_cores) {
    machine.usable_cores = std::max(1, static_cast<int>(*quota));
    machine.cores_reason +=
        ", " + std::to_string(machine.usable_cores) + " by the cgroup's CPU quota";
  }
  machine.gpus = count_gpus(root, nvml);
  return machine;
}

}  // namespace dlaunch::launcher
