#pragma once

#include <cstdio>
#include <iostream>

namespace dlaunch {

/// Flushes this process's output so far.
inline void flush_output() {
  std::cout.flush();
  std::clog.flush();
  // Not fflush(nullptr): it would wait for a thread that blocks in reading stdin.
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace dlaunch
