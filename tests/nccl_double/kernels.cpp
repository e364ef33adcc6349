#include "collectives/nccl/cuda_api.hpp"
#include "tests/nccl_double/cuda.hpp"

#include <cstddef>
#include <cstring>
#include <string>

/// Stand-ins for kernels: nothing is compiled, those of docs/examples/gradient_cuda.cpp are here by
/// their names, as functions that streams run.
namespace dlaunch::cuda_double {
namespace {

using nccl::CuResult;

constexpr CuResult invalid_image = 200;
constexpr CuResult not_found = 500;

template <class T>
T argument(void** arguments, int index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

/// The memory that the address names.
template <class T>
T* memory(void** arguments, int index) {
  return static_cast<T*>(host_address(argument<const void*>(arguments, index)));
}

using Kernel = void (*)(void* stream, void** arguments);

void gradient(void* stream, void** arguments) {
  auto* const g = memory<float>(arguments, 0);
  const auto* const w = memory<float>(arguments, 1);
  const auto target = argument<float>(arguments, 2);
  const auto n = argument<unsigned>(arguments, 5);
  put(stream, [=] {
    for (unsigned i = 0; i < n; ++i) g[i] = w[i] - target;
  });
}

void step(void* stream, void** arguments) {
  auto* const w = memory<float>(arguments, 0);
  const auto* const g = memory<float>(arguments, 1);
  const auto rate = argument<float>(arguments, 2);
  const auto n = argument<unsigned>(arguments, 3);
  put(stream, [=] {
    for (unsigned i = 0; i < n; ++i) w[i] -= rate * g[i];
  });
}

Kernel kernel_of(const std::string& name) {
  return name == "gradient" ? &gradient : name == "step" ? &step : nullptr;
}

}  // namespace
}  // namespace dlaunch::cuda_double

using namespace dlaunch::cuda_double;
using dlaunch::nccl::CuResult;

extern "C" {

CuResult cuModuleLoadData(void** module, const void* image) {
  const auto* text = static_cast<const char*>(image);
  if (std::strstr(text, ".version") == nullptr) return invalid_image;
  *module = new std::string(text);
  return 0;
}
CuResult cuModuleGetFunction(void** function, void* module, const char* name) {
  const std::string& text = *static_cast<std::string*>(module);
  if (text.find(std::string(".entry ") + name + "(") == std::string::npos) return not_found;
  *function = reinterpret_cast<void*>(kernel_of(name));
  return *function != nullptr ? 0 : not_found;
}
CuResult cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned, void* stream, void** arguments, void**) {
  if (blocks == 0 || threads == 0) return 1;
  reinterpret_cast<Kernel>(function)(stream, arguments);
  return 0;
}

}  // extern "C"
