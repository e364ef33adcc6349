#include "tests/support/ranks.hpp"

#include <dlaunch/communicator.hpp>

#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>

/// The sentences if the driver or NCCL are not there. In a program of its own: once loaded they
/// stay.
namespace dlaunch::testing {
namespace {

std::vector<Outcome> reduce_on_devices() {
  return run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<float> x(4);
    const TensorView view(x.data(), x.size(), DType::f32, Place{world.rank()});
    try {
      comm.all_reduce(view);
    } catch (const Error& error) {
      // The next call with host buffers works where nothing else is wrong.
      if (error.errc() == Errc::unsupported) comm.all_reduce(x);
      throw;
    }
  });
}

void check_says(const std::vector<Outcome>& outcomes, const std::vector<std::string>& parts) {
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == Errc::unsupported, outcome.text);
    for (const auto& part : parts) CHECK_MESSAGE(outcome.mentions(part), outcome.text);
  }
}

TEST_CASE("no driver") {
  ::setenv("DLAUNCH_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  ::setenv("DLAUNCH_NCCL_LIBRARY", DLAUNCH_NCCL_DOUBLE, 1);
  check_says(reduce_on_devices(),
             {"need the NVIDIA driver", "/nowhere/libcuda.so.1", "DLAUNCH_CUDA_LIBRARY"});
}

TEST_CASE("something else under the driver's name") {
  ::setenv("DLAUNCH_CUDA_LIBRARY", "libc.so.6", 1);
  check_says(reduce_on_devices(), {"libc.so.6 has no cuInit"});
}

TEST_CASE("no NCCL") {
  ::setenv("DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE, 1);
  ::setenv("DLAUNCH_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  check_says(reduce_on_devices(), {"need NCCL", "/nowhere/libnccl.so.2", "DLAUNCH_NCCL_LIBRARY"});
}

TEST_CASE("an NCCL that is too old") {
  ::setenv("DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE, 1);
  ::setenv("DLAUNCH_NCCL_LIBRARY", DLAUNCH_NCCL_DOUBLE, 1);
  ::setenv("DLAUNCH_DOUBLE_NCCL_VERSION", "21403", 1);
  check_says(reduce_on_devices(), {"NCCL 2.18.0 or later", "is 2.14.3"});
  ::setenv("DLAUNCH_DOUBLE_NCCL_VERSION", "2708", 1);
  check_says(reduce_on_devices(), {"is older than 2.9"});
  ::unsetenv("DLAUNCH_DOUBLE_NCCL_VERSION");
}

}  // namespace
}  // namespace dlaunch::testing
