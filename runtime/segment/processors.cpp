#include "runtime/segment/processors.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include <sched.h>

namespace dlaunch {
namespace {

constexpr int core_numbers_max = 1 << 18;

std::optional<long> positive(std::string_view text) {
  long value = 0;
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read_to != end || value < 1) return std::nullopt;
  return value;
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
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

std::optional<double> quota_v2(const std::string& directory) {
  const auto max = first_line(directory + "/cpu.max");
  if (!max) return std::nullopt;
  const auto space = max->find(' ');
  if (space == std::string::npos) return std::nullopt;
  return quota_of(std::string_view(*max).substr(0, space),
                  std::string_view(*max).substr(space + 1));
}

std::optional<double> quota_v1(const std::string& directory) {
  const auto quota = first_line(directory + "/cpu.cfs_quota_us");
  const auto period = first_line(directory + "/cpu.cfs_period_us");
  return quota && period ? quota_of(*quota, *period) : std::nullopt;
}

bool has_word(std::string_view comma_separated, std::string_view word) {
  while (!comma_separated.empty()) {
    const auto comma = std::min(comma_separated.find(','), comma_separated.size());
    if (comma_separated.substr(0, comma) == word) return true;
    comma_separated.remove_prefix(std::min(comma + 1, comma_separated.size()));
  }
  return false;
}

/// A line of /proc/self/cgroup: "hierarchy:controllers:/path".
std::optional<double> quota_of_line(const std::string& root, const std::string& line) {
  const auto first = line.find(':');
  const auto second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos || line.find(':', second + 1) != std::string::npos) return {};
  const std::string number = line.substr(0, first);
  const std::string controllers = line.substr(first + 1, second - first - 1);
  const std::string group = line.substr(second + 1);
  if (!group.starts_with('/')) return std::nullopt;
  std::optional<double> tightest;
  if (number == "0" && controllers.empty()) {
    for (const auto& directory : with_parents(root + "/sys/fs/cgroup", group)) {
      keep_smaller(tightest, quota_v2(directory));
    }
  } else if (has_word(controllers, "cpu")) {
    for (const auto& directory : with_parents(root + "/sys/fs/cgroup/cpu", group)) {
      keep_smaller(tightest, quota_v1(directory));
    }
  }
  return tightest;
}

}  // namespace

int Processors::usable() const noexcept {
  if (!quota || *quota >= allowed) return std::max(1, allowed);
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

Processors read_processors(const std::string& root) {
  Processors processors;
  processors.allowed = std::max(1, static_cast<int>(cores_in_affinity_mask().size()));
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    keep_smaller(processors.quota, quota_of_line(root, line));
  }
  return processors;
}

std::vector<int> cores_in_affinity_mask() {
  // The kernel refuses a mask smaller than its own; 1024 suffices nearly everywhere.
  for (int most = 1024; most <= core_numbers_max; most *= 4) {
    const std::size_t size = CPU_ALLOC_SIZE(most);
    std::vector<unsigned long> mask(size / sizeof(unsigned long));
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(0, size, set) != 0) continue;
    std::vector<int> cores;
    for (int core = 0; core < most; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), size, set)) cores.push_back(core);
    }
    return cores;
  }
  return {};
}

std::optional<double> quota_of(std::string_view quota_us, std::string_view period_us) {
  const auto quota = positive(quota_us), period = positive(period_us);
  if (!quota || !period) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace dlaunch
