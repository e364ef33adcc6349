#pragma once

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>
#include <sched.h>

namespace dlaunch::process_test {

/// The numbers of the processors that this thread, and what it starts, may use.
inline std::vector<int> own_processors() {
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  std::vector<int> numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &all)) numbers.push_back(number);
  }
  return numbers;
}

/// As long as it lives, this thread and what it starts may use one processor only.
class OnProcessor {
 public:
  explicit OnProcessor(int number) {
    REQUIRE(::sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;
  ~OnProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

}  // namespace dlaunch::process_test
