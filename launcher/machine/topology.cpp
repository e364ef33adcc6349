#include "launcher/machine/topology.hpp"

#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include <unistd.h>

namespace dlaunch::launcher {

namespace {

namespace fs = std::filesystem;

constexpr int core_numbers_max = 1 << 18;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<int> number_in(std::string_view text) {
  const auto read = read_integer(text, -1, core_numbers_max);
  if (const auto* value = std::get_if<long>(&read)) return static_cast<int>(*value);
  return std::nullopt;
}

/// The names in a directory, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The lowest core that shares the highest cache for data; -1 where nothing is told of caches.
int cache_of(const std::string& core_directory) {
  int highest = 0;
  int lowest_sharer = -1;
  for (const auto& name : names_in(core_directory + "/cache")) {
    const std::string cache = core_directory + "/cache/" + name;
    const std::string kind = first_line(cache + "/type");
    const int level = number_in(first_line(cache + "/level")).value_or(0);
    if ((kind != "Unified" && kind != "Data") || level <= highest) continue;
    const auto sharers = read_core_list(first_line(cache + "/shared_cpu_list"));
    if (sharers.empty()) continue;
    highest = level;
    lowest_sharer = sharers.front();
  }
  return lowest_sharer;
}

std::map<int, int> nodes_of_cores(const std::string& root) {
  std::map<int, int> node_of;
  const std::string directory = root + "/sys/devices/system/node";
  for (const auto& name : names_in(directory)) {
    const auto node = name.starts_with("node") ? number_in(name.substr(4)) : std::nullopt;
    if (!node) continue;
    for (const int core : read_core_list(first_line(directory + "/" + name + "/cpulist"))) {
      node_of[core] = *node;
    }
  }
  return node_of;
}

/// The value behind "NAME:" in one of the driver's files.
std::string driver_field(const std::string& path, std::string_view name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const auto value = line.find_first_not_of(" \t", name.size() + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

/// -1: there is only one node, or it is not known.
int node_of_device(const std::string& device) {
  return std::max(0, number_in(first_line(device + "/numa_node")).value_or(0));
}

/// The GPUs this process has device files for; where the driver tells nothing of them, all that the
/// PCI bus has.
std::vector<GpuPlace> read_gpus(const std::string& root) {
  std::vector<GpuPlace> gpus;
  const std::string pci = root + "/sys/bus/pci/devices/";
  const std::string driver = root + "/proc/driver/nvidia/gpus";
  const auto known = names_in(driver);
  for (const auto& address : known) {
    const std::string information = driver + "/" + address + "/information";
    const std::string minor = driver_field(information, "Device Minor");
    if (!minor.empty() && ::access((root + "/dev/nvidia" + minor).c_str(), F_OK) != 0) continue;
    gpus.push_back({driver_field(information, "GPU UUID"), node_of_device(pci + address)});
  }
  if (!known.empty()) return gpus;
  for (const auto& address : names_in(pci)) {
    const bool nvidia = first_line(pci + address + "/vendor") == "0x10de";
    // The PCI class of display controllers, 3D ones included.
    if (!nvidia || !first_line(pci + address + "/class").starts_with("0x03")) continue;
    gpus.push_back({"", node_of_device(pci + address)});
  }
  return gpus;
}

}  // namespace

Topology read_topology(std::span<const int> allowed, const std::string& root) {
  Topology topology;
  const auto node_of = nodes_of_cores(root);
  for (const int number : allowed) {
    const std::string directory = root + "/sys/devices/system/cpu/cpu" + std::to_string(number);
    LogicalCore core;
    core.number = number;
    const auto node = node_of.find(number);
    core.node = node == node_of.end() ? 0 : node->second;
    const auto socket = number_in(first_line(directory + "/topology/physical_package_id"));
    core.socket = std::max(0, socket.value_or(0));
    const auto siblings = read_core_list(first_line(directory + "/topology/thread_siblings_list"));
    core.core = siblings.empty() ? number : siblings.front();
    core.cache = cache_of(directory);
    topology.cores.push_back(core);
  }
  topology.gpus = read_gpus(root);
  return topology;
}

std::vector<int> read_core_list(std::string_view text) {
  std::vector<int> cores;
  for (const auto part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto first = number_in(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_in(part.substr(dash + 1));
    if (!first || !last || *first < 0) continue;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

}  // namespace dlaunch::launcher
