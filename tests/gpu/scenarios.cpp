#include "tests/gpu/scenarios.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

namespace dlaunch::gpu_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t count = std::size_t{1} << 18;
constexpr int relaxed = 2;
constexpr const char* death_key = "gpu_test/death";

TensorView part(const DeviceBuffer& buffer, std::size_t which) {
  const TensorView whole = buffer.view(DType::f32);
  return {static_cast<float*>(whole.data) + which * count, count, DType::f32, whole.place};
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
  const int last = comm.size() - 1;
  fill(rank, mine, me);
  comm.broadcast(mine.view(DType::f32), last);
  expect_all(rank, mine.view(DType::f32), static_cast<float>(last), "broadcast");
  fill(rank, mine, me);
  comm.gather(mine.view(DType::f32), all.view(DType::f32), 0);
  if (comm.rank() == 0) expect_all(rank, part(all, ranks - 1), static_cast<float>(last), "gather");
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

/// More calls than are told to other ranks at once, or than a device's queue holds: 1024. Ranks
/// that share a GPU take turns on it, which costs each call milliseconds.
void many_calls(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, 16);
  fill(rank, data, 0);
  for (int i = 0; i < 1100; ++i) rank.comm.all_reduce(data.view(DType::f32), {}, on(stream));
  expect(rank.driver.synchronize(stream) == 0, "a stream of many calls");
  expect_all(rank, data.view(DType::f32), 0, "many calls");
}

/// A graph of what a stream did while it was captured, which can be run.
class Graph {
 public:
  template <class Calls>
  Graph(const Rank& rank, void* stream, const Calls& calls) : driver_(rank.driver) {
    expect(driver_.begin_capture(stream, relaxed) == 0, "a capture begins");
    calls();
    expect(driver_.end_capture(stream, &graph_) == 0, "a capture ends as a graph");
    expect(driver_.make_graph(&ready_, graph_, 0) == 0, "a graph can be run");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  /// A communicator whose calls it holds does not end before it does.
  ~Graph() {
    if (ready_ != nullptr) driver_.destroy_ready_graph(ready_);
    if (graph_ != nullptr) driver_.destroy_graph(graph_);
  }
  void launch(void* stream) { expect(driver_.launch_graph(ready_, stream) == 0, "a graph runs"); }

 private:
  const Driver& driver_;
  void* graph_ = nullptr;
  void* ready_ = nullptr;
};

void graphs(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  fill(rank, data, 1);
  Graph graph(rank, stream, [&] {
    rank.comm.all_reduce(data.view(DType::f32), {}, on(stream));
    Work work = rank.comm.start_all_reduce(data.view(DType::f32), {}, on(stream));
    work.wait();
  });
  expect_all(rank, data.view(DType::f32), 1, "what is captured is not done");
  float expected = 1;
  for (int i = 0; i < 3; ++i) {
    graph.launch(stream);
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
  const bool is_last = rank.comm.rank() + 1 == rank.comm.size();
  auto some = rank.comm.split(is_last ? std::nullopt : std::optional(0));
  expect(some.has_value() == !is_last, "a rank without a colour gets none");
  if (some) in(*some, "split without the last rank");
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

/// One communicator of host memory and one of the device, in either order.
void mixed(const Rank& rank) {
  Communicator host(rank.world, "host");
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  std::vector<float> numbers(count);
  for (int i = 0; i < 4; ++i) {
    fill(rank, data, 1);
    numbers.assign(count, 2);
    Work on_host, on_device;
    for (const bool is_host : {(rank.comm.rank() + i) % 2 == 0, (rank.comm.rank() + i) % 2 != 0}) {
      if (is_host) on_host = host.start_all_reduce(numbers);
      if (!is_host) on_device = rank.comm.start_all_reduce(data.view(DType::f32), {}, on(stream));
    }
    host.barrier();
    on_device.wait();
    on_host.wait();
    const auto size = static_cast<float>(rank.comm.size());
    expect_all(rank, data.view(DType::f32), size, "a device's communicator beside one of the host");
    expect(numbers == std::vector<float>(count, 2 * size), "one of the host beside a device's");
    from_device(rank, std::as_writable_bytes(std::span(numbers)), data.data());
    rank.comm.all_reduce(numbers);
    expect(numbers == std::vector<float>(count, size * size), "host memory after the device's");
  }
}

/// Rank 0 makes so many calls without the others, until one ends because of its timeout.
void call_alone(const Rank& rank, Communicator& comm, int calls) {
  const std::string key = "done/" + comm.name();
  if (comm.rank() != 0) {
    rank.world.store()->wait(key, Clock::now() + 60s);
    return;
  }
  void* const stream = make_stream(rank);
  const auto data = make(rank, 16);
  Options options = on(stream);
  options.timeout = 2s;
  const auto begin = Clock::now();
  std::string told;
  try {
    for (int i = 0; i < calls; ++i) comm.all_reduce(data.view(DType::f32), {}, options);
    comm.barrier({.timeout = 2s});
  } catch (const Error& error) {
    told = error.what();
    expect(error.errc() == Errc::timeout, told);
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  rank.world.store()->set(key, {});
  expect(!told.empty(), "a call that the others do not make ends");
  expect(took < 20s, "it ends in time, not after " + std::to_string(took.count()) + " s");
  // What is on the stream uses the buffer until NCCL has ended it, call by call.
  expect(rank.driver.synchronize(stream) == 0, "a stream whose calls were ended");
}

/// NCCL has to connect the ranks in its first call, and waits for those that do not come.
void absent(const Rank& rank) {
  Communicator comm(rank.world, "absent");
  comm.prepare_device(rank.device);
  call_alone(rank, comm, 1);
}

/// There is no room on the stream for more calls, and never will be.
void full_stream(const Rank& rank) {
  Communicator comm(rank.world, "full");
  const auto data = make(rank, 16);
  comm.all_reduce(data.view(DType::f32));
  call_alone(rank, comm, 3000);
}

/// The program waits for its stream, not for a call.
void disagreement(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  try {
    rank.comm.all_reduce(data.view(DType::f32),
                         rank.comm.rank() == 0 ? ReduceOp::sum : ReduceOp::max, on(stream));
    rank.driver.synchronize(stream);
    for (const auto until = Clock::now() + 10s; Clock::now() < until;) rank.comm.barrier();
  } catch (const Error& error) {
    expect(error.errc() == Errc::mismatch, error.what());
    return;
  }
  expect(false, "ranks that disagree are told");
}

constexpr std::array all = {
    Scenario{"reductions", reductions},
    Scenario{"moves", moves},
    Scenario{"messages", messages, 2},
    Scenario{"streams", streams},
    Scenario{"every operation, as in host memory", compare_with_host, 1, true},
    Scenario{"many calls", many_calls, 1, true},
    Scenario{"graphs", graphs},
    Scenario{"groups", groups},
    Scenario{"host and device", mixed},
    Scenario{"registered memory", registered_memory},
    Scenario{"gradients", gradients},
    Scenario{"absent ranks", absent, 2},
    Scenario{"disagreement", disagreement, 2},
    Scenario{"a full stream", full_stream, 2},
};

/// Tells the time of the clock that all processes of a host share.
void tell_time_of_death(const Rank& rank) {
  const auto now = Clock::now();
  rank.world.store()->set(death_key, std::as_bytes(std::span(&now, 1)));
}

Clock::time_point time_of_death(const Rank& rank) {
  const Bytes told = rank.world.store()->wait(death_key, Clock::now() + 10s);
  Clock::time_point time;
  std::memcpy(&time, told.data(), sizeof time);
  return time;
}

}  // namespace

std::span<const Scenario> scenarios() { return all; }

void leave_a_graph(const Rank& rank) {
  void* const stream = make_stream(rank);
  const auto data = make(rank, count);
  fill(rank, data, 1);
  const auto size = static_cast<float>(rank.comm.size());
  auto copy = std::make_optional(rank.comm.duplicate());
  copy->all_reduce(data.view(DType::f32));
  Graph graph(rank, stream, [&] { copy->all_reduce(data.view(DType::f32), {}, on(stream)); });
  graph.launch(stream);
  expect(rank.driver.synchronize(stream) == 0, "a graph ends");
  expect_all(rank, data.view(DType::f32), size * size, "a graph does its call");
  const auto begin = Clock::now();
  copy.reset();
  expect(Clock::now() - begin < 30s, "a communicator ends while a graph holds its calls");
  rank.comm.all_reduce(data.view(DType::f32));
  expect_all(rank, data.view(DType::f32), size * size * size, "others go on");
}

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
    tell_time_of_death(rank);
    die();
    return 0;
  }
  Clock::time_point knew;
  try {
    comm.all_reduce(data.view(DType::f32), {}, on(stream));
    rank.driver.synchronize(stream);  // Ends when NCCL was told to.
    comm.barrier();
    expect(false, "a lost rank is told of");
  } catch (const Error& error) {
    knew = Clock::now();
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
  return std::chrono::duration<double>(knew - time_of_death(rank)).count();
}

}  // namespace dlaunch::gpu_test
