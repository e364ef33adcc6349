#pragma once

#include "tests/nccl_double/cuda.hpp"
#include "tests/nccl_double/nccl.hpp"
#include "tests/support/outcomes.hpp"

#include <dlaunch/communicator.hpp>

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::testing {

/// Before the first CUDA buffer: what stands for the driver and NCCL.
inline void use_doubles() {
  ::setenv("DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE, 1);
  ::setenv("DLAUNCH_NCCL_LIBRARY", DLAUNCH_NCCL_DOUBLE, 1);
}

/// Whether the NCCL of this run can revoke, and so each group has a second communicator for calls.
inline bool nccl_revokes() {
  const char* other = std::getenv("DLAUNCH_DOUBLE_NCCL_VERSION");
  return other == nullptr || std::atoi(other) >= 22807;
}

/// Runs ranks, each of which has the device of its own number.
inline std::vector<Outcome> run_device_ranks(
    int size, const Body& body, std::vector<std::shared_ptr<FakeMembership>> memberships = {}) {
  use_doubles();
  return run_ranks(size, body, std::move(memberships));
}

/// What a rank leaves that dies: it does not say that it ends. Kept to the program's end, so that
/// nothing takes it for lost memory.
inline void leave_behind(Communicator&& comm) {
  static std::mutex mutex;
  static auto* const dead = new std::vector<Communicator*>;
  const std::lock_guard lock(mutex);
  dead->push_back(new Communicator(std::move(comm)));
}

#ifdef __SANITIZE_THREAD__
/// Nor for lost threads.
extern "C" [[gnu::used, gnu::visibility("default")]] inline const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}
#endif

/// The same elements, said to lie on a device, under an address at which the host faults.
template <class T>
TensorView on_device(std::vector<T>& elements, int device) {
  return {cuda_double::device_address(elements.data()), elements.size(), dtype_of<T>::value,
          Place{device}};
}
template <class T>
ConstTensorView on_device(const std::vector<T>& elements, int device) {
  return {cuda_double::device_address(elements.data()), elements.size(), dtype_of<T>::value,
          Place{device}};
}

}  // namespace dlaunch::testing
