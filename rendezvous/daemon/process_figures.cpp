#include "rendezvous/daemon/process_figures.hpp"

#include "runtime/base/os/directory.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/text/take.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

namespace {

/// Their table takes half a MiB of the kernel's memory.
constexpr rlim_t reserved_fds = 65'536;

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size_pages = 0, resident_pages = 0;
  file >> size_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t open_fds() {
  const Directory folder(::opendir("/proc/self/fd"));
  if (!folder) return 0;
  std::uint64_t count = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count - 1;  // Without the descriptor of the folder itself.
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// The number at the beginning of a text; nullopt if there is none, as in "max".
std::optional<std::size_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

std::size_t limit_in(const FileReader& read, const std::string& path) {
  const auto text = read(path);
  return text ? leading_number(*text).value_or(unlimited) : unlimited;
}

/// The least limit of the cgroup at `path` below `root` and of those above it. In a container the
/// path may be the host's, and only the root is there.
std::size_t least_limit(const FileReader& read, const std::string& root, std::string_view path,
                        const char* file) {
  std::size_t least = limit_in(read, root + file);
  while (path.size() > 1) {
    least = std::min(least, limit_in(read, root + std::string(path) + file));
    path = path.substr(0, path.rfind('/'));
  }
  return least;
}

/// "0::/a/b" is that of version 2, "7:memory:/a/b" that of version 1.
std::size_t cgroup_limit(const FileReader& read) {
  const auto text = read("/proc/self/cgroup");
  if (!text) return unlimited;
  std::size_t least = unlimited;
  for (const auto line : split(*text, '\n')) {
    const auto second = line.find(':', line.find(':') + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view path = line.substr(second + 1);
    if (line.starts_with("0::")) {
      least = std::min(least, least_limit(read, "/sys/fs/cgroup", path, "/memory.max"));
    } else if (line.find(":memory:") != std::string_view::npos) {
      least = std::min(least,
                       least_limit(read, "/sys/fs/cgroup/memory", path, "/memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

ProcessFigures process_figures() {
  rlimit fds{};
  ::getrlimit(RLIMIT_NOFILE, &fds);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {.resident_bytes = resident_bytes(),
          .open_fds = open_fds(),
          .fds_max = fds.rlim_cur,
          .cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

void raise_fd_limit() {
  rlimit fds{};
  if (::getrlimit(RLIMIT_NOFILE, &fds) != 0) return;
  fds.rlim_cur = fds.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &fds);
  ::getrlimit(RLIMIT_NOFILE, &fds);
  const rlim_t last = std::min(fds.rlim_cur, reserved_fds) - 1;
  const unique_fd highest(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(last)));
}

std::size_t machine_memory() {
  struct sysinfo machine {};
  if (::sysinfo(&machine) != 0) return unlimited;
  return static_cast<std::size_t>(machine.totalram) * machine.mem_unit;
}

std::size_t usable_memory(const FileReader& read, std::size_t machine) {
  const std::size_t cgroup = cgroup_limit(read);
  return std::min(cgroup - cgroup / 4, machine / 2);
}

}  // namespace dlaunch::rendezvous
