#include "tests/gpu/scenarios.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <dlfcn.h>

namespace dlaunch::gpu_test {
namespace {

constexpr std::size_t count = std::size_t{1} << 18;
constexpr unsigned non_blocking = 1;
constexpr int relaxed = 2;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("does not hold: " + what);
}

unsigned long long address(const void* pointer) {
  return reinterpret_cast<unsigned long long>(pointer);
}

DeviceBuffer make(const Rank& rank, std::size_t elements) {
  return rank.comm.allocate_device(elements * sizeof(float), rank.device);
}

void fill(const Rank& rank, const DeviceBuffer& buffer, float value) {
  const std::vector<float> host(buffer.size_bytes() / sizeof(float), value);
  expect(rank.driver.copy(address(buffer.data()), address(host.data()), buffer.size_bytes()) == 0,
         "a copy to the device");
}

std::vector<float> read(const Rank& rank, const TensorView& view) {
  std::vector<float> host(view.count);
  expect(rank.driver.copy(address(host.data()), address(view.data), view.bytes()) == 0,
         "a copy from the device");
  return host;
}

void expect_all(const Rank& rank, const TensorView& view, float value, const std::string& what) {
  for (const float each : read(rank, view)) {
    if (each == value) continue;
    expect(false, what + ": " + std::to_string(each) + ", not " + std::to_string(value));
  }
}

TensorView part(const DeviceBuffer& buffer, std::size_t which) {
  const TensorView whole = buffer.view(DType::f32);
  return {static_cast<float*>(whole.data) + which * count, count, DType::f32, whole.place};
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

float ranks_sum(const Rank& rank) {
  const int size = rank.comm.size();
  return static_cast<float>(size * (size + 1) / 2);
}

void reductions(const Rank& rank) {
  const auto data = make(rank, count);
  const auto mine = static_cast<float>(rank.comm.rank() + 1);
  const auto size = static_cast<float>(rank.comm.size());
  float product = 1;
  for (int i = 1; i <= rank.comm.size(); ++i) product *= static_cast<float>(i);
  const auto give = [&](const Reduction& reduction, float expected, const char* what) {
    fill(rank, data, mine);
    rank.comm.all_reduce(data.view(DType::f32), reduction);
    expect_all(rank, data.view(DType::f32), expected, what);
  };
  give(ReduceOp::sum, ranks_sum(rank), "sum");
  give(ReduceOp::max, size, "max");
  give(ReduceOp::min, 1, "min");
  give(ReduceOp::product, product, "product");
  give(ReduceOp::mean, ranks_sum(rank) / size, "mean");
  give(Reduction::premul_sum(0.5), ranks_sum(rank) / 2, "premul_sum");
}

void moves(const Rank& rank) {
  Communicator& comm = rank.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<float>(comm.rank());
  const auto mine = make(rank, count), all = make(rank, ranks * count);
  fill(rank, mine, me);
  comm.all_gather(mine.view(DType::f32), all.view(DType::f32));
  for (std::size_t i = 0; i < ranks; ++i) {
    expect_all(rank, part(all, i), static_cast<float>(i), "all_gather");
  }
  const auto exchanged = make(rank, ranks * count);
  comm.all_to_all(all.view(DType::f32), exchanged.view(DType::f32));
  expect_all(rank, exchanged.view(DType::f32), me, "all_to_all");
  comm.reduce_scatter(all.view(DType::f32), mine.view(DType::f32));
  expect_all(rank, mine.view(DType::f32), me * static_cast<float>(ranks), "reduce_scatter");
  fill(rank, mine, me);
  comm.broadcast(mine.view(DType::f32), 1);
  expect_all(rank, mine.view(DType::f32), 1, "broadcast");
  fill(rank, mine, me);
  comm.gather(mine.view(DType::f32), all.view(DType::f32), 0);
  if (comm.rank() == 0) expect_all(rank, part(all, 1), 1, "gather");
  comm.scatter(all.view(DType::f32), mine.view(DType::f32), 0);
  expect_all(rank, mine.view(DType::f32), me, "scatter");
}

void messages(const Rank& rank) {
  Communicator& comm = rank.comm;
  const int next = (comm.rank() + 1) % comm.size();
  const int before = (comm.rank() + comm.size() - 1) % comm.size();
  const auto mine = make(rank, count), theirs = make(rank, count);
  fill(rank, mine, static_cast<float>(comm.rank()));
  const std::array both{Transfer::send(mine.view(DType::f32), next),
                        Transfer::recv(theirs.view(DType::f32), before)};
  comm.batch(both);
  expect_all(rank, theirs.view(DType::f32), static_cast<float>(before), "batch");
  if (comm.rank() == 0) comm.send(mine.view(DType::f32), 1);
  if (comm.rank() == 1) {
    comm.recv(theirs.view(DType::f32), 0);
    expect_all(rank, theirs.view(DType::f32), 0, "recv");
  }
}

void streams(const Rank& rank) {
  void* const one = make_stream(rank);
  void* const other = make_stream(rank);
  const auto data = make(rank, count);
  fill(rank, data, 1);
  float expected = 1;
  for (int i = 0; i < 5; ++i) {
    rank.comm.all_reduce(data.view(DType::f32), {}, on(one));
    expected *= static_cast<float>(rank.comm.size());
  }
  Work work = rank.comm.start_all_reduce(data.view(DType::f32), {}, on(one));
  expected *= static_cast<float>(rank.comm.size());
  work.order_before(other);
  expect(rank.driver.synchronize(other) == 0, "a stream that waits for another");
  expect_all(rank, data.view(DType::f32), expected, "calls in their order");
  work.wait();
}

/// More calls than are told to other ranks at once, or than a device's queue holds.
void many_calls(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, 16);
  fill(rank, data, 0);
  for (int i = 0; i < 3000; ++i) rank.comm.all_reduce(data.view(DType::f32), {}, on(stream));
  expect(rank.driver.synchronize(stream) == 0, "a stream of many calls");
  expect_all(rank, data.view(DType::f32), 0, "many calls");
}

void graphs(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  fill(rank, data, 1);
  void* graph = nullptr;
  void* ready = nullptr;
  expect(rank.driver.begin_capture(stream, relaxed) == 0, "a capture begins");
  rank.comm.all_reduce(data.view(DType::f32), {}, on(stream));
  Work work = rank.comm.start_all_reduce(data.view(DType::f32), {}, on(stream));
  work.wait();
  expect(rank.driver.end_capture(stream, &graph) == 0, "a capture ends as a graph");
  expect(rank.driver.make_graph(&ready, graph, 0) == 0, "a graph can be run");
  expect_all(rank, data.view(DType::f32), 1, "what is captured is not done");
  float expected = 1;
  for (int i = 0; i < 3; ++i) {
    expect(rank.driver.launch_graph(ready, stream) == 0, "a graph runs");
    expected *= static_cast<float>(rank.comm.size() * rank.comm.size());
  }
  expect(rank.driver.synchronize(stream) == 0, "a graph ends");
  expect_all(rank, data.view(DType::f32), expected, "a graph does its calls each time");
}

void groups(const Rank& rank) {
  const auto data = make(rank, count);
  const auto in = [&](Communicator& comm, const char* what) {
    fill(rank, data, 1);
    comm.all_reduce(data.view(DType::f32));
    expect_all(rank, data.view(DType::f32), static_cast<float>(comm.size()), what);
  };
  auto all = rank.comm.split(0);
  in(*all, "split");
  auto alone = rank.comm.split(rank.comm.rank());
  in(*alone, "split into single ranks");
  Communicator copy = rank.comm.duplicate();
  in(copy, "duplicate");
  Communicator same = rank.comm.shrink();
  in(same, "shrink where nobody is gone");
  in(rank.comm, "the communicator that they are of");
}

/// Buffers come and go while their communicator knows them.
void registered_memory(const Rank& rank) {
  for (int i = 0; i < 10; ++i) {
    const auto data = make(rank, count << (i % 4));
    fill(rank, data, 1);
    rank.comm.all_reduce(data.view(DType::f32));
    expect_all(rank, data.view(DType::f32), static_cast<float>(rank.comm.size()), "registered");
  }
  auto child = rank.comm.duplicate();
  const auto data = child.allocate_device(count * sizeof(float), rank.device);
  fill(rank, data, 1);
  child.all_reduce(data.view(DType::f32));
  expect_all(rank, data.view(DType::f32), static_cast<float>(rank.comm.size()),
             "registered for a child, which ends before its buffer");
}

void gradients(const Rank& rank) {
  std::vector<DeviceBuffer> values, gradients;
  std::vector<Parameter> parameters;
  for (int i = 0; i < 4; ++i) {
    values.push_back(make(rank, count));
    gradients.push_back(make(rank, count));
    fill(rank, values.back(), static_cast<float>(rank.comm.rank()));
    parameters.push_back({"p" + std::to_string(i),
                          values.back().view(DType::f32),
                          gradients.back().view(DType::f32),
                          {}});
  }
  ReducerSettings settings;
  settings.cuda_stream = make_stream(rank);
  GradientReducer reducer(rank.comm, parameters, {}, settings);
  expect(rank.driver.synchronize(settings.cuda_stream) == 0, "parameters");
  expect_all(rank, parameters[0].value, 0, "parameters are rank 0's");
  for (int step = 0; step < 3; ++step) {
    for (const auto& gradient : gradients) {
      fill(rank, gradient, static_cast<float>(rank.comm.rank() + 1));
    }
    reducer.begin();
    for (std::size_t i = parameters.size(); i-- > 0;) reducer.ready(i);
    reducer.finish();
    expect(rank.driver.synchronize(settings.cuda_stream) == 0, "gradients");
    for (const auto& parameter : parameters) {
      const float mean = ranks_sum(rank) / static_cast<float>(rank.comm.size());
      expect_all(rank, parameter.gradient, mean, "gradients are the mean");
    }
  }
}

/// The program waits for its stream, not for a call.
void disagreement(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  try {
    rank.comm.all_reduce(data.view(DType::f32),
                         rank.comm.rank() == 0 ? ReduceOp::sum : ReduceOp::max, on(stream));
    rank.driver.synchronize(stream);
    for (int i = 0; i < 1000; ++i) rank.comm.barrier();
  } catch (const Error& error) {
    expect(error.errc() == Errc::mismatch, error.what());
    return;
  }
  expect(false, "ranks that disagree are told");
}

constexpr std::array all = {
    Scenario{"reductions", reductions}, Scenario{"moves", moves},
    Scenario{"messages", messages},     Scenario{"streams", streams},
    Scenario{"many calls", many_calls}, Scenario{"graphs", graphs},
    Scenario{"groups", groups},         Scenario{"registered memory", registered_memory},
    Scenario{"gradients", gradients},   Scenario{"disagreement", disagreement},
};

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
         find("cuMemcpy", copy) && find("cuStreamCreate", make_stream) &&
         find("cuStreamSynchronize", synchronize) &&
         find("cuStreamBeginCapture_v2", begin_capture) &&
         find("cuStreamEndCapture", end_capture) &&
         find("cuGraphInstantiateWithFlags", make_graph) && find("cuGraphLaunch", launch_graph) &&
         init(0) == 0;
}

int Driver::devices() const {
  int found = 0;
  return device_count(&found) == 0 ? found : 0;
}

std::span<const Scenario> scenarios() { return all; }

double lose_the_last(const Rank& rank, const std::function<void()>& die) {
  Communicator& comm = rank.comm;
  const int last = comm.size() - 1;
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  fill(rank, data, 1);
  comm.all_reduce(data.view(DType::f32), {}, on(stream));
  rank.driver.synchronize(stream);
  comm.barrier();
  if (comm.rank() == last) {
    die();
    return 0;
  }
  const auto begin = Clock::now();
  double knew = 0;
  try {
    comm.all_reduce(data.view(DType::f32), {}, on(stream));
    rank.driver.synchronize(stream);  // Ends when NCCL was told to.
    comm.barrier();
    expect(false, "a lost rank is told of");
  } catch (const Error& error) {
    knew = std::chrono::duration<double>(Clock::now() - begin).count();
    expect(error.errc() == Errc::peer_lost, error.what());
    expect(std::string(error.what()).find("lost rank " + std::to_string(last)) != std::string::npos,
           error.what());
  }
  Communicator rest = comm.shrink();
  expect(rest.size() == last, "the survivors");
  const auto theirs = rest.allocate_device(count * sizeof(float), rank.device);
  fill(rank, theirs, 1);
  rest.all_reduce(theirs.view(DType::f32));
  expect_all(rank, theirs.view(DType::f32), static_cast<float>(last), "the survivors' sum");
  return knew;
}

}  // namespace dlaunch::gpu_test
