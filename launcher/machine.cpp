#include "launcher/machine.hpp"

#include "launcher/option_values.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace dlaunch::launcher {

namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

/// "200000 100000" is two cores; "max 100000" and nonsense limit nothing.
std::optional<double> cores_of(std::string_view quota, std::string_view period) {
  constexpr long most = 1L << 40;
  const auto q = read_integer(quota, 1, most);
  const auto p = read_integer(period, 1, most);
  if (std::holds_alternative<Complaint>(q) || std::holds_alternative<Complaint>(p)) return {};
  return static_cast<double>(std::get<long>(q)) / static_cast<double>(std::get<long>(p));
}

void keep_smaller(std::optional<double>& kept, std::optional<double> found) {
  if (found && (!kept || *found < *kept)) kept = found;
}

/// The directories from a cgroup up to its hierarchy's root, both included.
std::vector<std::string> with_parents(const std::string& mount, std::string group) {
  std::vector<std::string> directories;
  while (group.size() > 1) {
    directories.push_back(mount + group);
    group.erase(group.find_last_of('/'));
  }
  directories.push_back(mount);
  return directories;
}

/// The tightest quota on the way up, in cores; nullopt for none.
std::optional<double> cgroup_cores(const std::string& root) {
  std::optional<double> cores;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto parts = split(line, ':');
    if (parts.size() != 3 || !parts[2].starts_with('/')) continue;
    const std::string group(parts[2]);
    if (parts[0] == "0" && parts[1].empty()) {
      for (const auto& directory : with_parents(root + "/sys/fs/cgroup", group)) {
        const auto max = first_line(directory + "/cpu.max");
        if (!max) continue;
        const auto words = split(*max, ' ');
        if (words.size() == 2) keep_smaller(cores, cores_of(words[0], words[1]));
      }
      continue;
    }
    const auto controllers = split(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
    for (const auto& directory : with_parents(root + "/sys/fs/cgroup/cpu", group)) {
      const auto quota = first_line(directory + "/cpu.cfs_quota_us");
      const auto period = first_line(directory + "/cpu.cfs_period_us");
      if (quota && period) keep_smaller(cores, cores_of(*quota, *period));
    }
  }
  return cores;
}

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

/// Device files, since a container sees those it was given, while /proc shows the host's. Where
/// the driver is loaded but made no files yet, /proc has the number.
int count_gpus(const std::string& root) {
  if (::access((root + "/dev/nvidiactl").c_str(), F_OK) != 0) return 0;
  const int devices = count_entries(root + "/dev", [](std::string_view name) {
    return name.starts_with("nvidia") && is_number(name.substr(6));
  });
  if (devices > 0) return devices;
  return count_entries(root + "/proc/driver/nvidia/gpus", [](std::string_view) { return true; });
}

}  // namespace

Machine read_machine(const std::string& root) {
  Machine machine;
  char hostname[256] = {};
  if (::gethostname(hostname, sizeof hostname - 1) == 0) machine.hostname = hostname;
  if (machine.hostname.empty()) machine.hostname = "localhost";
  machine.usable_cores = std::max(1, static_cast<int>(cores_in_affinity_mask().size()));
  machine.cores_reason = std::to_string(machine.usable_cores) + " in the affinity mask";
  if (const auto quota = cgroup_cores(root); quota && *quota < machine.usable_cores) {
    machine.usable_cores = std::max(1, static_cast<int>(*quota));
    machine.cores_reason +=
        ", " + std::to_string(machine.usable_cores) + " by the cgroup's CPU quota";
  }
  machine.gpus = count_gpus(root);
  return machine;
}

}  // namespace dlaunch::launcher
