#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace dlaunch::testing {

/// Runs a test's jobs, several at a time, since they wait more than they work. A job may CHECK, but
/// not REQUIRE, which would end its thread.
inline void side_by_side(const std::vector<std::function<void()>>& jobs) {
  constexpr int threads_max = 8;
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < threads_max; ++i) {
    threads.emplace_back([&] {
      for (std::size_t job = next++; job < jobs.size(); job = next++) jobs[job]();
    });
  }
}

}  // namespace dlaunch::testing
