#pragma once

#include <cstdint>

namespace dlaunch::rendezvous {

/// Our own process, as the kernel shows it; 0 for what it does not.
struct ProcessFigures {
  std::uint64_t resident_bytes = 0;
  std::uint64_t open_fds = 0;
  std::uint64_t fds_max = 0;
  double cpu_seconds = 0;
};

ProcessFigures process_figures();

/// Allows as many descriptors as the hard limit does; returns how many are allowed now.
std::uint64_t raise_fd_limit();

}  // namespace dlaunch::rendezvous
