// What summing gradients adds to a step of 64 layers, each with a gradient of 1 MiB: in one
// all_reduce after each layer, in GradientReducer's buckets, with gradients of the program's own or
// in the reducer's memory, and under a join with all ranks or with one that only shadows.
//
//   dlaunch --nproc_per_node 2 training_ours [--steps N]
//
// One line of JSON for each way, by rank 0: milliseconds of a step, median, least and most, and the
// median without summing. A step costs what its slowest rank took. ddp.py is the same with PyTorch.
#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr std::size_t layers = 64, width = 512, batch = 8;
constexpr std::size_t elements = width * width;  // 1 MiB of f32

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The weights' gradient of a linear layer: the sum over the batch of slope times input.
void backward(float* gradient, const std::vector<float>& slopes, const std::vector<float>& inputs) {
  for (std::size_t row = 0; row < width; ++row) {
    float* const out = gradient + row * width;
    std::memset(out, 0, width * sizeof(float));
    for (std::size_t sample = 0; sample < batch; ++sample) {
      const float slope = slopes[sample * width + row];
      const float* const input = inputs.data() + sample * width;
      for (std::size_t column = 0; column < width; ++column) out[column] += slope * input[column];
    }
  }
}

class Bench {
 public:
  Bench(dlaunch::Communicator& comm, int steps) : comm_(comm), steps_(steps) {}

  /// Measures `step`, which is told whether it is the last one.
  void measure(const char* way, const std::function<void()>& step) {
    std::vector<double> costs;
    for (int i = -2; i < steps_; ++i) {  // Two to warm up; buckets are made anew in the second.
      comm_.barrier();
      const double begin = now_ms();
      step();
      double took = now_ms() - begin;
      comm_.all_reduce(took, dlaunch::ReduceOp::max);
      if (i >= 0) costs.push_back(took);
    }
    tell(way, costs);
  }
  void tell(const char* way, std::vector<double> costs) {
    std::sort(costs.begin(), costs.end());
    const double median = costs[costs.size() / 2];
    if (std::string_view(way) == "compute") compute_ms_ = median;
    if (comm_.rank() != 0) return;
    std::printf(
        "{\"who\": \"dlaunch\", \"way\": \"%s\", \"ranks\": %d, \"ms\": %.3f, \"least\": %.3f, "
        "\"most\": %.3f, \"added\": %.3f}\n",
        way, comm_.size(), median, costs.front(), costs.back(), median - compute_ms_);
    std::fflush(stdout);
  }
  int steps() const { return steps_; }

 private:
  dlaunch::Communicator& comm_;
  int steps_;
  double compute_ms_ = 0;
};

using Gradients = std::vector<std::vector<float>>;

std::vector<dlaunch::Parameter> parameters_of(Gradients& values, Gradients* gradients) {
  std::vector<dlaunch::Parameter> parameters;
  for (std::size_t i = 0; i < layers; ++i) {
    parameters.push_back(
        {"layer" + std::to_string(i), values[i],
         gradients != nullptr ? dlaunch::TensorView((*gradients)[i]) : dlaunch::TensorView()});
  }
  return parameters;
}

/// Rank 0 is out of inputs, the others are not: what a step costs those that have some.
void measure_shadow(dlaunch::Communicator& comm, Bench& bench, dlaunch::GradientReducer& reducer,
                    const std::function<void()>& step) {
  std::vector<double> costs(static_cast<std::size_t>(bench.steps()));
  dlaunch::Join join(reducer);
  if (comm.rank() != 0) {
    for (int i = -2; i < bench.steps(); ++i) {
      const double begin = now_ms();
      step();
      if (i >= 0) costs[static_cast<std::size_t>(i)] = now_ms() - begin;
    }
  }
  join.finish();
  comm.all_reduce(costs, dlaunch::ReduceOp::max);
  bench.tell("one rank shadows", costs);
}

void run(const dlaunch::World& world, int steps) {
  dlaunch::Communicator comm(world);
  Bench bench(comm, steps);
  const std::vector<float> slopes(batch * width, 0.5F), inputs(batch * width, 1);
  Gradients values(layers, std::vector<float>(elements)), gradients = values;

  bench.measure("compute", [&] {
    for (std::size_t i = layers; i-- > 0;) backward(gradients[i].data(), slopes, inputs);
  });
  bench.measure("all_reduce after each layer", [&] {
    for (std::size_t i = layers; i-- > 0;) {
      backward(gradients[i].data(), slopes, inputs);
      comm.all_reduce(gradients[i], dlaunch::ReduceOp::mean);
    }
  });
  const dlaunch::ReducerSettings settings{.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20};
  dlaunch::GradientReducer own(comm, parameters_of(values, &gradients), {}, settings);
  dlaunch::GradientReducer provided(comm, parameters_of(values, nullptr), {}, settings);
  const auto step = [&](dlaunch::GradientReducer& reducer) {
    reducer.begin();
    for (std::size_t i = layers; i-- > 0;) {
      backward(static_cast<float*>(reducer.gradient(i).data), slopes, inputs);
      reducer.ready(i);
    }
    reducer.finish();
  };
  const auto step_together = [&] {
    provided.begin();
    for (std::size_t i = layers; i-- > 0;) {
      backward(static_cast<float*>(provided.gradient(i).data), slopes, inputs);
    }
    for (std::size_t i = layers; i-- > 0;) provided.ready(i);
    provided.finish();
  };
  bench.measure("reducer", [&] { step(own); });
  bench.measure("reducer's memory", [&] { step(provided); });
  bench.measure("reducer's memory, all ready at the end", step_together);
  {
    dlaunch::Join join(own);
    // The bench's own collectives are the same on all ranks: none has joined.
    bench.measure("all ranks in a join", [&] { step(own); });
    join.finish();
  }
  measure_shadow(comm, bench, own, [&] { step(own); });
}

}  // namespace

int main(int argc, char** argv) try {
  const bool given = argc == 3 && std::strcmp(argv[1], "--steps") == 0;
  run(dlaunch::World::from_env(), given ? std::max(1, std::atoi(argv[2])) : 15);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "training: %s\n", error.what());
  return 1;
}
