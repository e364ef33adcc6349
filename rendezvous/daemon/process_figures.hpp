#pragma once

#include "runtime/base/text/options.hpp"

#include <cstddef>
#include <cstdint>

namespace dlaunch::rendezvous {

/// Figures of our own process from the kernel; 0 where it tells nothing.
struct ProcessFigures {
  std::uint64_t resident_bytes = 0;
  std::uint64_t open_fds = 0;
  std::uint64_t fds_max = 0;
  double cpu_seconds = 0;
};

ProcessFigures process_figures();

/// Allows as many descriptors as the hard limit does, and has the kernel make room for many of them
/// at once. To be called before any thread begins: where several share the table of descriptors,
/// the kernel lets the accept that doubles it wait for all processors (synchronize_rcu), 10 to 20
/// ms.
void raise_fd_limit();

/// The machine's memory, by the kernel: the unit hides /proc/meminfo.
std::size_t machine_memory();
/// How many bytes a daemon may hold for its jobs by default: three quarters of the least limit of
/// its cgroup and those above, or half of the machine's memory, whatever is less. Files that cannot
/// be read limit nothing.
std::size_t usable_memory(const FileReader& read, std::size_t machine);

}  // namespace dlaunch::rendezvous
