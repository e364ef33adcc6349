#include "runtime/base/os/process_stat.hpp"

#include "runtime/base/os/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch {

std::optional<ProcessStat> process_stat(std::int64_t pid) {
  std::array<char, 32> path;
  std::snprintf(path.data(), path.size(), "/proc/%lld/stat", static_cast<long long>(pid));
  const unique_fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> block;
  const auto size = file ? ::read(file.get(), block.data(), block.size()) : 0;
  if (size <= 0) return std::nullopt;
  std::string_view text(block.data(), static_cast<std::size_t>(size));
  // "pid (name) state ...": the name may hold anything.
  const auto name_end = text.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return std::nullopt;
  text.remove_prefix(name_end + 2);
  ProcessStat stat;
  stat.state = text.front();
  constexpr int fields_between = 19;  // From the state, the third, to the start time.
  constexpr int first_time = 10, last_time = 13;
  std::int64_t ticks = 0;
  for (int i = 0; i < fields_between; ++i) {
    const auto space = text.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    text.remove_prefix(space + 1);
    if (i == 0) std::from_chars(text.data(), text.data() + text.size(), stat.parent);
    if (i < first_time || i > last_time) continue;
    std::int64_t time = 0;
    std::from_chars(text.data(), text.data() + text.size(), time);
    ticks += time;
  }
  const auto read = std::from_chars(text.data(), text.data() + text.size(), stat.started);
  if (read.ec != std::errc()) return std::nullopt;
  static const std::int64_t ticks_per_second = std::max(::sysconf(_SC_CLK_TCK), 1L);
  stat.cpu_time = std::chrono::milliseconds(ticks * 1000 / ticks_per_second);
  return stat;
}

bool is_in_signal_mask(std::int64_t pid, std::string_view mask, int signal_number) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    if (word != std::string(mask) + ":") continue;
    std::uint64_t signals = 0;
    status >> std::hex >> signals;
    return ((signals >> (signal_number - 1)) & 1) != 0;
  }
  return false;
}

}  // namespace dlaunch
