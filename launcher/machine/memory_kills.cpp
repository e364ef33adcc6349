#include "launcher/machine/memory_kills.hpp"

#include <charconv>
#include <fstream>
#include <iterator>

namespace dlaunch::launcher {
namespace {

std::string whole(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string_view take_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return line;
}

/// "memory" among "cpu,memory".
bool has_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const auto end = controllers.find(',');
    if (controllers.substr(0, end) == "memory") return true;
    if (end == std::string_view::npos) return false;
    controllers.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

std::vector<std::string> kill_count_files(std::string_view proc_self_cgroup) {
  std::vector<std::string> first, second;
  while (!proc_self_cgroup.empty()) {
    const auto line = take_line(proc_self_cgroup);
    const auto number_end = line.find(':');
    const auto name_end = line.find(':', number_end + 1);
    if (number_end == std::string_view::npos || name_end == std::string_view::npos) continue;
    const auto controllers = line.substr(number_end + 1, name_end - number_end - 1);
    std::string path(line.substr(name_end + 1));
    if (path == "/") path.clear();
    if (has_memory(controllers)) {
      // In a container the path is often the host's, while its own cgroup is mounted as the root.
      if (!path.empty()) first.push_back("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
      first.push_back("/sys/fs/cgroup/memory/memory.oom_control");
    } else if (controllers.empty()) {
      if (!path.empty()) second.push_back("/sys/fs/cgroup" + path + "/memory.events");
      second.push_back("/sys/fs/cgroup/memory.events");
    }
  }
  first.insert(first.end(), second.begin(), second.end());
  first.push_back("/proc/vmstat");
  return first;
}

std::optional<long> kill_count_in(std::string_view text) {
  constexpr std::string_view name = "oom_kill ";
  while (!text.empty()) {
    auto line = take_line(text);
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    long count = 0;
    const auto read = std::from_chars(line.data(), line.data() + line.size(), count);
    if (read.ec == std::errc{}) return count;
  }
  return std::nullopt;
}

std::optional<KillCount> read_kill_count() {
  for (auto& file : kill_count_files(whole("/proc/self/cgroup"))) {
    if (const auto count = kill_count_in(whole(file))) return KillCount{std::move(file), *count};
  }
  return std::nullopt;
}

std::optional<KillCount> read_kill_count_of(const std::string& cgroup) {
  std::string file = cgroup + "/memory.events";
  const auto count = kill_count_in(whole(file));
  return count ? std::optional(KillCount{std::move(file), *count}) : std::nullopt;
}

}  // namespace dlaunch::launcher
