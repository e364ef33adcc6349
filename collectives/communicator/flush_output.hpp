#pragma once

#include <cstdio>
#include <iostream>

namespace dlaunch {

/// Writes out what this process printed so far.
inline void flush_output() {
  std::cout.flush();
  std::clog.flush();
  // Not fflush(nullptr): it would wait for a thread that blocks in reading stdin.
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace dlaunch
