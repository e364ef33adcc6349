#include "rendezvous/daemon/process_figures.hpp"

#include <fstream>
#include <memory>

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

namespace {

using Directory = std::unique_ptr<DIR, decltype([](DIR* d) { ::closedir(d); })>;

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
  return count - 1;  // The folder's own.
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
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

std::uint64_t raise_fd_limit() {
  rlimit fds{};
  if (::getrlimit(RLIMIT_NOFILE, &fds) != 0) return 0;
  fds.rlim_cur = fds.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &fds);
  ::getrlimit(RLIMIT_NOFILE, &fds);
  return fds.rlim_cur;
}

}  // namespace dlaunch::rendezvous
