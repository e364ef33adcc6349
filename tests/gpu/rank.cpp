#include "tests/gpu/rank.hpp"

#include <cstdlib>
#include <stdexcept>
#include <type_traits>

#include <dlfcn.h>

namespace dlaunch::gpu_test {
namespace {

constexpr unsigned non_blocking = 1;

unsigned long long address(const void* pointer) {
  return reinterpret_cast<unsigned long long>(pointer);
}

}  // namespace

bool Driver::load() {
  const char* named = std::getenv("DLAUNCH_CUDA_LIBRARY");
  void* const library = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  const auto find = [&](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  return find("cuInit", init) && find("cuDeviceGetCount", device_count) &&
         find("cuDevicePrimaryCtxRetain", retain) && find("cuCtxSetCurrent", set_current) &&
         find("cuMemAlloc_v2", allocate) && find("cuMemFree_v2", free) && find("cuMemcpy", copy) &&
         find("cuStreamCreate", make_stream) && find("cuStreamSynchronize", synchronize) &&
         find("cuStreamBeginCapture_v2", begin_capture) &&
         find("cuStreamEndCapture", end_capture) &&
         find("cuGraphInstantiateWithFlags", make_graph) && find("cuGraphLaunch", launch_graph) &&
         find("cuGraphExecDestroy", destroy_ready_graph) && find("cuGraphDestroy", destroy_graph) &&
         init(0) == 0;
}

int Driver::devices() const {
  int found = 0;
  return device_count(&found) == 0 ? found : 0;
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

/// A copy from pageable memory may return before the last of it has arrived, and streams that do
/// not wait for the default one would read what was there before.
void to_device(const Rank& rank, void* device, std::span<const std::byte> host) {
  if (host.empty()) return;
  expect(rank.driver.copy(address(device), address(host.data()), host.size()) == 0 &&
             rank.driver.synchronize(nullptr) == 0,
         "a copy to the device");
}

void from_device(const Rank& rank, std::span<std::byte> host, const void* device) {
  if (host.empty()) return;
  expect(rank.driver.copy(address(host.data()), address(device), host.size()) == 0,
         "a copy from the device");
}

DeviceBuffer make(const Rank& rank, std::size_t floats) {
  return rank.comm.allocate_device(floats * sizeof(float), rank.device);
}

void fill(const Rank& rank, const DeviceBuffer& buffer, float value) {
  const std::vector<float> host(buffer.size_bytes() / sizeof(float), value);
  to_device(rank, buffer.data(), std::as_bytes(std::span(host)));
}

void expect_all(const Rank& rank, const TensorView& view, float value, const std::string& what) {
  std::vector<float> host(view.count);
  from_device(rank, std::as_writable_bytes(std::span(host)), view.data);
  for (const float each : host) {
    if (each == value) continue;
    expect(false, what + ": " + std::to_string(each) + ", not " + std::to_string(value));
  }
}

void* make_stream(const Rank& rank) {
  void* stream = nullptr;
  expect(rank.driver.make_stream(&stream, non_blocking) == 0, "a stream");
  return stream;
}

Options on(void* stream) {
  Options options;
  options.cuda_stream = stream;
  return options;
}

}  // namespace dlaunch::gpu_test
