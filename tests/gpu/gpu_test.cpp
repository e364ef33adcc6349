// CUDA buffers on a real GPU: gpu_test starts itself under dlaunch as two ranks, which may share
// one GPU. Exit code 77, and a sentence, where there is none.
#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace {

using namespace dlaunch;

constexpr int skipped = 77;
constexpr std::size_t count = std::size_t{1} << 20;

/// What the test itself needs of the driver.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*copy)(unsigned long long, unsigned long long, std::size_t) = nullptr;
  int (*make_stream)(void**, unsigned) = nullptr;
  int (*synchronize)(void*) = nullptr;

  bool load() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return false;
    const auto find = [&](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    return find("cuInit", init) && find("cuDeviceGetCount", device_count) &&
           find("cuDevicePrimaryCtxRetain", retain) && find("cuCtxSetCurrent", set_current) &&
           find("cuMemcpy", copy) && find("cuStreamCreate", make_stream) &&
           find("cuStreamSynchronize", synchronize) && init(0) == 0;
  }
  int devices() const {
    int found = 0;
    return device_count(&found) == 0 ? found : 0;
  }
};

int failures = 0;

void check(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

unsigned long long address(const void* pointer) {
  return reinterpret_cast<unsigned long long>(pointer);
}

struct Rank {
  const Driver& driver;
  Communicator& comm;
  int device;

  void fill(const DeviceBuffer& buffer, float value) const {
    const std::vector<float> host(buffer.size_bytes() / sizeof(float), value);
    check(driver.copy(address(buffer.data()), address(host.data()), buffer.size_bytes()) == 0,
          "copy to the device");
  }
  bool holds(const DeviceBuffer& buffer, std::size_t first, std::size_t last, float value) const {
    std::vector<float> host(buffer.size_bytes() / sizeof(float));
    if (driver.copy(address(host.data()), address(buffer.data()), buffer.size_bytes()) != 0) {
      return false;
    }
    for (std::size_t i = first; i < last; ++i) {
      if (host[i] != value) return false;
    }
    return true;
  }
  DeviceBuffer buffer(std::size_t elements) const {
    return comm.allocate_device(elements * sizeof(float), device);
  }
};

void reduce(const Rank& rank) {
  const auto data = rank.buffer(count);
  const auto mine = static_cast<float>(rank.comm.rank() + 1);
  const auto sums = [&](const Reduction& reduction, float expected, const char* what) {
    rank.fill(data, mine);
    rank.comm.all_reduce(data.view(DType::f32), reduction);
    check(rank.holds(data, 0, count, expected), what);
  };
  sums(ReduceOp::sum, 3, "sum");
  sums(ReduceOp::max, 2, "max");
  sums(ReduceOp::min, 1, "min");
  sums(ReduceOp::product, 2, "product");
  sums(ReduceOp::mean, 1.5F, "mean");
  sums(Reduction::premul_sum(0.5), 1.5F, "premul_sum");
}

void move(const Rank& rank) {
  const auto mine = rank.buffer(count), all = rank.buffer(2 * count);
  rank.fill(mine, static_cast<float>(rank.comm.rank()));
  rank.comm.all_gather(mine.view(DType::f32), all.view(DType::f32));
  check(rank.holds(all, 0, count, 0) && rank.holds(all, count, 2 * count, 1), "all_gather");
  const auto out = rank.buffer(2 * count);
  rank.comm.all_to_all(all.view(DType::f32), out.view(DType::f32));
  check(rank.holds(out, 0, 2 * count, static_cast<float>(rank.comm.rank())), "all_to_all");
  const int other = 1 - rank.comm.rank();
  const auto theirs = rank.buffer(count);
  const std::vector<Transfer> both{Transfer::send(mine.view(DType::f32), other),
                                   Transfer::recv(theirs.view(DType::f32), other)};
  rank.comm.batch(both);
  check(rank.holds(theirs, 0, count, static_cast<float>(other)), "batch");
}

void streams(const Rank& rank) {
  void* one = nullptr;
  void* other = nullptr;
  check(rank.driver.make_stream(&one, 1) == 0 && rank.driver.make_stream(&other, 1) == 0,
        "streams");
  const auto data = rank.buffer(count);
  rank.fill(data, 1);
  Options options;
  options.cuda_stream = one;
  for (int i = 0; i < 10; ++i) rank.comm.all_reduce(data.view(DType::f32), {}, options);
  Work work = rank.comm.start_all_reduce(data.view(DType::f32), {}, options);
  work.order_before(other);
  check(rank.driver.synchronize(other) == 0, "a stream that waits for another");
  check(rank.holds(data, 0, count, 2048), "calls in their order");
  work.wait();
  auto child = rank.comm.split(0);
  rank.fill(data, 1);
  child->all_reduce(data.view(DType::f32));
  check(rank.holds(data, 0, count, 2), "split");
}

/// The program waits for its stream, not for a call.
void disagree(const Rank& rank) {
  void* stream = nullptr;
  check(rank.driver.make_stream(&stream, 1) == 0, "stream");
  const auto data = rank.buffer(count);
  Options options;
  options.cuda_stream = stream;
  try {
    rank.comm.all_reduce(data.view(DType::f32),
                         rank.comm.rank() == 0 ? ReduceOp::sum : ReduceOp::max, options);
    rank.driver.synchronize(stream);
    rank.comm.barrier();
    check(false, "ranks that disagree are told");
  } catch (const Error& error) {
    check(error.errc() == Errc::mismatch, error.what());
  }
}

int run(const Driver& driver) {
  const World world = World::init();
  const int device = world.rank() % driver.devices();
  // NCCL takes ranks of one host on one GPU for a mistake.
  if (driver.devices() < world.size()) {
    ::setenv("NCCL_HOSTID", std::to_string(world.rank()).c_str(), 1);
  }
  void* context = nullptr;
  check(driver.retain(&context, device) == 0 && driver.set_current(context) == 0, "device");
  Communicator comm(world);
  const Rank rank{driver, comm, device};
  reduce(rank);
  move(rank);
  streams(rank);
  disagree(rank);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  Driver driver;
  if (!driver.load() || driver.devices() == 0) {
    std::printf("skipped: there is no NVIDIA GPU here\n");
    return skipped;
  }
  if (argc > 1) return run(driver);
  ::execl(DLAUNCH_BINARY_DIR "/bin/dlaunch", "dlaunch", "--nproc-per-node", "2", argv[0], "rank",
          nullptr);
  std::perror("cannot start dlaunch");
  return 1;
} catch (const dlaunch::Error& error) {
  std::printf("FAILED: %s\n", error.what());
  return 1;
}
