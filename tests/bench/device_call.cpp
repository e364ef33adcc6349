// What a call with CUDA buffers costs the host until it is on its stream, beside ncclAllReduce
// itself on the same stream, in turn: device_call [calls] [repetitions]. NCCL's own communicators
// are one that does not block, as dlaunch's, and one that does. On its own two ranks are threads of
// this process, on the test doubles of CUDA and NCCL, whose streams swallow what is put on them:
// what is left is what dlaunch does. Under `dlaunch` its ranks are processes, with a GPU and the
// real libraries.
#include "collectives/device/loader.hpp"
#include "collectives/nccl/nccl_api.hpp"
#include "tests/nccl_double/cuda.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include <dlfcn.h>

using namespace dlaunch;

namespace {

using nccl::NcclApi;
using nccl::NcclComm;

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("there is no ") + name);
}

/// More would wait until there is room on the stream.
constexpr long calls_max = 200;

/// NCCL as a program calls it.
class Raw {
 public:
  Raw(Communicator& communicator, bool blocks) {
    const char* file = std::getenv("DLAUNCH_NCCL_LIBRARY");
    void* library = ::dlopen(file != nullptr ? file : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    find(library, "ncclGetUniqueId", api_.get_unique_id);
    find(library, "ncclCommInitRankConfig", api_.comm_init);
    find(library, "ncclCommGetAsyncError", api_.get_async_error);
    find(library, "ncclCommAbort", api_.comm_abort);
    find(library, "ncclAllReduce", api_.all_reduce);
    std::vector<nccl::NcclUniqueId> id(1);
    if (communicator.rank() == 0) api_.get_unique_id(id.data());
    communicator.broadcast(std::as_writable_bytes(std::span(id)), 0);
    nccl::NcclConfig config;
    config.blocking = blocks ? 1 : 0;
    api_.comm_init(&comm_, communicator.size(), id[0], communicator.rank(), &config);
    settle();
  }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  ~Raw() { api_.comm_abort(comm_); }
  void all_reduce(const TensorView& view, void* stream) {
    settle(api_.all_reduce(view.data, view.data, view.count, nccl::nccl_f32, nccl::nccl_sum, comm_,
                           stream));
  }

 private:
  /// Until it is on its stream.
  void settle(nccl::NcclResult state = nccl::nccl_in_progress) {
    while (state == nccl::nccl_in_progress) {
      std::this_thread::yield();
      api_.get_async_error(comm_, &state);
    }
    if (state != nccl::nccl_success) throw std::runtime_error("NCCL failed");
  }

  NcclApi api_{};
  NcclComm comm_ = nullptr;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void compare(const World& world, int device, long calls, int repetitions) {
  Communicator comm(world);
  device::Library& library = device::library();
  const DeviceBuffer buffer = comm.allocate_device(1024, device);
  const TensorView view = buffer.view(DType::f32);
  Options options;
  if (!library.make_stream(device, options.cuda_stream).is_done()) {
    throw std::runtime_error("no stream");
  }
  comm.all_reduce(view, {}, options);
  Raw raw(comm, false), blocking(comm, true);
  const auto time = [&](const auto& call) {
    library.synchronize(device, options.cuda_stream);
    comm.barrier();
    const auto begin = Clock::now();
    for (long i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    library.synchronize(device, options.cuda_stream);
    return took.count() / static_cast<double>(calls);
  };
  std::vector<double> ours, theirs, blocked, differences;
  for (int i = 0; i < repetitions; ++i) {
    blocked.push_back(time([&] { blocking.all_reduce(view, options.cuda_stream); }));
    theirs.push_back(time([&] { raw.all_reduce(view, options.cuda_stream); }));
    ours.push_back(time([&] { comm.all_reduce(view, {}, options); }));
    differences.push_back(ours.back() - theirs.back());
  }
  library.free_stream(device, options.cuda_stream);
  if (comm.rank() != 0) return;
  std::printf(
      "%s, %d ranks, %ld calls, median of %d: ncclAllReduce %.0f ns (%.0f ns where it blocks), "
      "all_reduce %.0f ns, %.0f ns more\n",
      library.name().c_str(), comm.size(), calls, repetitions, median(theirs), median(blocked),
      median(ours), median(differences));
}

}  // namespace

int main(int argc, char** argv) try {
  const long calls = argc > 1 ? std::clamp(std::atol(argv[1]), 1L, calls_max) : calls_max;
  const int repetitions = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 11;
  if (std::getenv("RANK") != nullptr) {
    const World world = World::init();
    int devices = 0;
    if (!device::library().count_devices(devices).is_done() || devices == 0) {
      throw std::runtime_error("there is no CUDA device");
    }
    compare(world, world.info().local_rank % devices, calls, repetitions);
    return 0;
  }
  ::setenv("DLAUNCH_CUDA_LIBRARY", DLAUNCH_CUDA_DOUBLE, 1);
  ::setenv("DLAUNCH_NCCL_LIBRARY", DLAUNCH_NCCL_DOUBLE, 1);
  cuda_double::swallow(true);
  const auto outcomes = testing::run_ranks(
      2, [&](const World& world) { compare(world, world.rank(), calls, repetitions); });
  for (const auto& outcome : outcomes) {
    if (!outcome.ok()) throw std::runtime_error(outcome.text);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "device_call: %s\n", error.what());
  return 1;
}
