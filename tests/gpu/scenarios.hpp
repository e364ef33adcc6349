#pragma once

#include "tests/gpu/rank.hpp"

#include <functional>
#include <span>

/// The scenarios that gpu_test runs on GPUs; nccl_test runs them on the test doubles, so that a
/// failure on a GPU is not the test's.
namespace dlaunch::gpu_test {

/// Throws a sentence about what did not hold.
struct Scenario {
  const char* name;
  void (*run)(const Rank& rank);
  int ranks_min = 1;
  bool has_many_calls = false;  ///< Too many for a tool that makes each one slow.
};
/// Those that leave the communicator as it was, and last one that breaks it.
std::span<const Scenario> scenarios();

/// Every operation with buffers on the device, and the same call with buffers in host memory, of
/// the same communicator: in every type and reduction that NCCL has.
void compare_with_host(const Rank& rank);

/// Ends a communicator while a graph with its calls can still be run; then it destroys the graph.
void leave_a_graph(const Rank& rank);

/// The last rank dies by `die` while the others have a call with it on their streams, which they
/// wait for; then they go on without it. Returns the seconds from its death until they knew.
double lose_the_last(const Rank& rank, const std::function<void()>& die);

}  // namespace dlaunch::gpu_test
