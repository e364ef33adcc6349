#pragma once

#include <dlaunch/dlaunch.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

/// What is shown on GPUs, by gpu_test; nccl_test runs it on the test doubles, so that what fails on
/// a GPU is not the test.
namespace dlaunch::gpu_test {

/// What a test itself needs of the driver; DLAUNCH_CUDA_LIBRARY names another file.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*copy)(unsigned long long, unsigned long long, std::size_t) = nullptr;
  int (*make_stream)(void**, unsigned) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*begin_capture)(void*, int) = nullptr;
  int (*end_capture)(void*, void**) = nullptr;
  int (*make_graph)(void**, void*, unsigned long long) = nullptr;
  int (*launch_graph)(void*, void*) = nullptr;

  bool load();
  int devices() const;
};

struct Rank {
  const Driver& driver;
  Communicator& comm;
  int device = 0;
};

/// Throws what did not hold.
struct Scenario {
  const char* name;
  void (*run)(const Rank& rank);
};
/// Those that leave the communicator as it was, and last one that breaks it.
std::span<const Scenario> scenarios();

/// The last rank dies by `die` while the others have a call with it on their streams, which they
/// wait for; then they go on without it. Returns the seconds until they knew.
double lose_the_last(const Rank& rank, const std::function<void()>& die);

}  // namespace dlaunch::gpu_test
