// Training on GPUs, one for each rank: kernels compute gradients on a stream, GradientReducer makes
// them their mean on another one meanwhile, and a kernel takes the step. Needs neither CUDA's
// compiler nor its headers: the kernels are PTX, which the driver compiles, and the driver is
// loaded at run time. Exit code 69, and a sentence, where there is no GPU.
//
//   dlaunch --nproc_per_node gpu gradient_cuda [megabytes] [steps]
#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace {

constexpr int unavailable = 69;
constexpr int layers = 16;
constexpr unsigned threads = 256;
constexpr unsigned work_rounds = 400;  // The cost of computing an element.
constexpr float rate = 0.5F;

/// gradient: g[i] = w[i] - target, slowly. step: w[i] -= rate * g[i].
constexpr const char* kernels = R"(
.version 6.5
.target sm_75
.address_size 64

.visible .entry gradient(.param .u64 g_, .param .u64 w_, .param .f32 target_, .param .f32 one_,
                         .param .u32 rounds_, .param .u32 n_)
{
  .reg .pred p;
  .reg .b32 i, n, k, rounds, block, thread;
  .reg .b64 g, w, at;
  .reg .f32 x, target, one;
  mov.u32 i, %ctaid.x;
  mov.u32 block, %ntid.x;
  mov.u32 thread, %tid.x;
  mad.lo.u32 i, i, block, thread;
  ld.param.u32 n, [n_];
  setp.ge.u32 p, i, n;
  @p bra done;
  ld.param.u64 g, [g_];
  ld.param.u64 w, [w_];
  ld.param.f32 target, [target_];
  ld.param.f32 one, [one_];
  ld.param.u32 rounds, [rounds_];
  mul.wide.u32 at, i, 4;
  add.u64 w, w, at;
  add.u64 g, g, at;
  ld.global.f32 x, [w];
  sub.f32 x, x, target;
  mov.u32 k, 0;
again:
  mul.rn.f32 x, x, one;
  add.u32 k, k, 1;
  setp.lt.u32 p, k, rounds;
  @p bra again;
  st.global.f32 [g], x;
done:
  ret;
}

.visible .entry step(.param .u64 w_, .param .u64 g_, .param .f32 rate_, .param .u32 n_)
{
  .reg .pred p;
  .reg .b32 i, n, block, thread;
  .reg .b64 g, w, at;
  .reg .f32 x, y, rate;
  mov.u32 i, %ctaid.x;
  mov.u32 block, %ntid.x;
  mov.u32 thread, %tid.x;
  mad.lo.u32 i, i, block, thread;
  ld.param.u32 n, [n_];
  setp.ge.u32 p, i, n;
  @p bra done;
  ld.param.u64 g, [g_];
  ld.param.u64 w, [w_];
  ld.param.f32 rate, [rate_];
  mul.wide.u32 at, i, 4;
  add.u64 w, w, at;
  add.u64 g, g, at;
  ld.global.f32 x, [w];
  ld.global.f32 y, [g];
  neg.f32 y, y;
  fma.rn.f32 x, y, rate, x;
  st.global.f32 [w], x;
done:
  ret;
}
)";

/// The few functions of the driver that a program with kernels needs, as <cuda.h> declares them.
struct Driver {
  using Address = unsigned long long;
  int (*init)(unsigned);
  int (*error_text)(int, const char**);
  int (*device_count)(int*);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*load_module)(void**, const void*);
  int (*find_kernel)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*copy)(Address, Address, std::size_t);
  int (*make_stream)(void**, unsigned);
  int (*synchronize)(void*);

  /// False where there is no driver. DLAUNCH_CUDA_LIBRARY names another file, as it does for the
  /// library.
  bool load() {
    const char* named = std::getenv("DLAUNCH_CUDA_LIBRARY");
    void* const library = ::dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return false;
    const auto find = [&](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    return find("cuInit", init) && find("cuGetErrorString", error_text) &&
           find("cuDeviceGetCount", device_count) && find("cuDevicePrimaryCtxRetain", retain) &&
           find("cuCtxSetCurrent", set_current) && find("cuModuleLoadData", load_module) &&
           find("cuModuleGetFunction", find_kernel) && find("cuLaunchKernel", launch) &&
           find("cuMemcpy", copy) && find("cuStreamCreate", make_stream) &&
           find("cuStreamSynchronize", synchronize);
  }
  void check(int result, const char* what) const {
    if (result == 0) return;
    const char* text = nullptr;
    error_text(result, &text);
    throw std::runtime_error(std::string(what) + ": " + (text != nullptr ? text : "an error"));
  }
};

/// One rank's GPU: its stream, and the kernels on it.
class Gpu {
 public:
  Gpu(const Driver& driver, int device) : driver_(driver) {
    void* context = nullptr;
    void* module = nullptr;
    driver.check(driver.retain(&context, device), "cuDevicePrimaryCtxRetain");
    driver.check(driver.set_current(context), "cuCtxSetCurrent");
    driver.check(driver.load_module(&module, kernels), "cuModuleLoadData");
    driver.check(driver.find_kernel(&gradient_, module, "gradient"), "cuModuleGetFunction");
    driver.check(driver.find_kernel(&step_, module, "step"), "cuModuleGetFunction");
    driver.check(driver.make_stream(&stream, 1), "cuStreamCreate");
  }
  void gradient(const dlaunch::TensorView& g, const dlaunch::TensorView& w, float target) const {
    float one = 1;
    unsigned rounds = work_rounds, n = static_cast<unsigned>(w.count);
    void *into = g.data, *from = w.data;
    void* arguments[] = {&into, &from, &target, &one, &rounds, &n};
    run(gradient_, n, arguments);
  }
  void step(const dlaunch::TensorView& w, const dlaunch::TensorView& g) const {
    float by = rate;
    unsigned n = static_cast<unsigned>(w.count);
    void *into = w.data, *from = g.data;
    void* arguments[] = {&into, &from, &by, &n};
    run(step_, n, arguments);
  }
  void synchronize() const { driver_.check(driver_.synchronize(stream), "cuStreamSynchronize"); }
  void write(const std::vector<float>& from, void* to) const {
    copy(from.data(), to, from.size() * sizeof(float));
  }
  std::vector<float> read(const dlaunch::TensorView& view) const {
    std::vector<float> host(view.count);
    copy(view.data, host.data(), view.bytes());
    return host;
  }

  void* stream = nullptr;

 private:
  void run(void* kernel, unsigned n, void** arguments) const {
    driver_.check(driver_.launch(kernel, (n + threads - 1) / threads, 1, 1, threads, 1, 1, 0,
                                 stream, arguments, nullptr),
                  "cuLaunchKernel");
  }
  void copy(const void* from, void* to, std::size_t bytes) const {
    driver_.check(driver_.copy(reinterpret_cast<Driver::Address>(to),
                               reinterpret_cast<Driver::Address>(from), bytes),
                  "cuMemcpy");
  }

  const Driver& driver_;
  void* gradient_ = nullptr;
  void* step_ = nullptr;
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

int train(const Driver& driver, int devices, std::size_t megabytes, int steps) {
  const dlaunch::World world = dlaunch::World::init();
  const int device = world.info().local_rank % devices;
  const Gpu gpu(driver, device);
  dlaunch::Communicator comm(world);

  const std::size_t each = megabytes * (std::size_t{1} << 20) / sizeof(float) / layers;
  std::vector<dlaunch::DeviceBuffer> weights;
  std::vector<dlaunch::Parameter> parameters;
  for (int layer = 0; layer < layers; ++layer) {
    weights.push_back(comm.allocate_device(each * sizeof(float), device));
    gpu.write(std::vector<float>(each, 100.0F), weights.back().data());
    parameters.push_back(
        {"layer" + std::to_string(layer), weights.back().view(dlaunch::DType::f32), {}, {}});
  }
  dlaunch::ReducerSettings settings;
  settings.cuda_stream = gpu.stream;
  dlaunch::GradientReducer reducer(comm, parameters, {}, settings);

  // Every rank pulls the weights to a target of its own: they end at the mean of all.
  const auto target = static_cast<float>(comm.rank());
  double took = 0;
  for (int step = 0; step < steps; ++step) {
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    reducer.begin();
    for (std::size_t i = parameters.size(); i-- > 0;) {
      gpu.gradient(reducer.gradient(i), parameters[i].value, target);
      reducer.ready(i);  // Its sum begins while the next layer's gradient is computed.
    }
    reducer.finish();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      gpu.step(parameters[i].value, reducer.gradient(i));
    }
    gpu.synchronize();
    took = step == 0 ? milliseconds_since(begin) : std::min(took, milliseconds_since(begin));
  }
  comm.all_reduce(took, dlaunch::ReduceOp::max);

  const float mean = static_cast<float>(comm.size() - 1) / 2;
  const float left = (100.0F - mean) * std::pow(1 - rate, static_cast<float>(steps));
  std::int64_t wrong = 0;
  for (const auto& parameter : parameters) {
    for (const float weight : gpu.read(parameter.value)) {
      if (!(std::abs(weight - (mean + left)) < 0.01F)) ++wrong;
    }
  }
  comm.all_reduce(wrong);
  if (comm.rank() == 0) {
    std::printf(
        "%d ranks, %zu MiB of gradients in %zu buckets: %.2f ms a step; weights at %.3f, "
        "%lld of them wrong\n",
        comm.size(), megabytes, reducer.buckets().size(), took, static_cast<double>(mean + left),
        static_cast<long long>(wrong));
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 64;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 20;
  Driver driver{};
  int devices = 0;
  if (!driver.load() || driver.init(0) != 0 || driver.device_count(&devices) != 0 || devices == 0) {
    std::fprintf(stderr, "gradient_cuda: there is no NVIDIA GPU here, or no driver for it\n");
    return unavailable;
  }
  if (megabytes == 0 || steps < 1) {
    std::fprintf(stderr, "gradient_cuda: takes a number of megabytes and one of steps\n");
    return 64;
  }
  return train(driver, devices, megabytes, steps);
} catch (const std::exception& error) {
  std::fprintf(stderr, "gradient_cuda: %s\n", error.what());
  return 1;
}
