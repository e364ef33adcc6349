#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace dlaunch::testing {

/// Ends of TCP connections that this process has open. If both ends are here, it counts both.
inline std::size_t connection_ends() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  std::size_t ends = 0;
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const int fd = std::atoi(entry->d_name);
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (info.tcpi_state == TCP_ESTABLISHED) ++ends;
  }
  return ends;
}

}  // namespace dlaunch::testing
