#pragma once

#include "tests/nccl_double/cuda.hpp"
#include "tests/nccl_double/nccl.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/communicator.hpp>

#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::testing {

/// Before the first CUDA buffer: what stands for the driver and NCCL.
inline void use_doubles() {
  ::setenv("DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE, 1);
  ::setenv("DLAUNCH_NCCL_LIBRARY", DLAUNCH_NCCL_DOUBLE, 1);
}

/// Runs ranks, each of which has the device of its own number.
inline std::vector<Outcome> run_device_ranks(
    int size, const Body& body, std::vector<std::shared_ptr<FakeMembership>> memberships = {}) {
  use_doubles();
  return run_ranks(size, body, std::move(memberships));
}

/// The same elements, said to lie on a device, which the double lets us look into.
template <class T>
TensorView on_device(std::vector<T>& elements, int device) {
  return {elements.data(), elements.size(), dtype_of<T>::value, Place{device}};
}
template <class T>
ConstTensorView on_device(const std::vector<T>& elements, int device) {
  return {elements.data(), elements.size(), dtype_of<T>::value, Place{device}};
}

inline void check_all_ok(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

}  // namespace dlaunch::testing
