#pragma once

#include <dlaunch/dlaunch.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

/// A rank on a GPU, and what a test does with its device beside dlaunch's calls.
namespace dlaunch::gpu_test {

/// The driver's functions that a test itself needs; DLAUNCH_CUDA_LIBRARY names another file.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*allocate)(unsigned long long*, std::size_t) = nullptr;
  int (*free)(unsigned long long) = nullptr;
  int (*copy)(unsigned long long, unsigned long long, std::size_t) = nullptr;
  int (*make_stream)(void**, unsigned) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*begin_capture)(void*, int) = nullptr;
  int (*end_capture)(void*, void**) = nullptr;
  int (*make_graph)(void**, void*, unsigned long long) = nullptr;
  int (*launch_graph)(void*, void*) = nullptr;
  int (*destroy_ready_graph)(void*) = nullptr;
  int (*destroy_graph)(void*) = nullptr;

  bool load();
  int devices() const;
};

struct Rank {
  const Driver& driver;
  const World& world;
  Communicator& comm;
  int device = 0;
};

/// Throws std::runtime_error that says `what`.
void expect(bool holds, const std::string& what);

/// Done when it returns, also for what other streams do next.
void to_device(const Rank& rank, void* device, std::span<const std::byte> host);
void from_device(const Rank& rank, std::span<std::byte> host, const void* device);

DeviceBuffer make(const Rank& rank, std::size_t floats);
void fill(const Rank& rank, const DeviceBuffer& buffer, float value);
/// Every element is `value`; else it throws with `what`.
void expect_all(const Rank& rank, const TensorView& view, float value, const std::string& what);

/// One that does not wait for the default stream.
void* make_stream(const Rank& rank);
Options on(void* stream);

}  // namespace dlaunch::gpu_test
