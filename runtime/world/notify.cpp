#include <dlaunch/notify.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch {
namespace {

/// The longest notice that the launcher reads.
constexpr std::chrono::milliseconds time_max = std::chrono::hours(24 * 365);

/// A line into the launcher's pipe, which takes it whole or not at all. True also where the pipe is
/// full of lines that it has yet to read, if `may_drop`.
bool notify(std::string_view line, bool may_drop) noexcept {
  const char* path = std::getenv("DLAUNCH_WORKER_NOTIFY");
  if (path == nullptr || *path == '\0') return false;
  const int saved = errno;
  // Opening does not wait for a reader: without the launcher there is nobody to be told.
  const int pipe = ::open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  bool told = false;
  if (pipe >= 0) {
    const auto written = ::write(pipe, line.data(), line.size());
    told = written == static_cast<ssize_t>(line.size()) || (may_drop && errno == EAGAIN);
    ::close(pipe);
  }
  errno = saved;
  return told;
}

}  // namespace

bool report_progress() noexcept { return notify("progress\n", true); }

bool extend_deadline(std::chrono::milliseconds time) noexcept {
  std::array<char, 48> line{};
  const auto ms = static_cast<long long>(std::clamp(time, time.zero(), time_max).count());
  const int size = std::snprintf(line.data(), line.size(), "extend %lldms\n", ms);
  return notify({line.data(), static_cast<std::size_t>(size)}, false);
}

}  // namespace dlaunch
