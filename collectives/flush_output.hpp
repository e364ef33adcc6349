#pragma once

#include <cstdio>
#include <iostream>

namespace dlaunch {

/// What this process printed so far leaves it.
inline void flush_output() {
  std::cout.flush();
  std::clog.flush();
  // Not fflush(nullptr): it would wait for a thread that blocks in reading stdin.
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace dlaunch
