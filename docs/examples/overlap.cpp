// Communication behind computation: the gradients of one layer are summed while those of the next
// are computed. The same step is timed with blocking calls and with started ones.
//
//   dlaunch --nproc_per_node 2 overlap
#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

constexpr int layers = 8;
constexpr std::size_t layer_elements = 1 << 18;  // 1 MiB of f32
constexpr int passes = 8;                        // The cost of computing a layer.
constexpr int steps = 5;

using Layer = std::vector<float>;

/// Stands for a backward pass: after it every element is `value`.
void compute(Layer& gradient, float value) {
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  for (int pass = 0; pass < passes; ++pass) {
    for (float& element : gradient) element += value / passes;
  }
}

void step_in_turn(dlaunch::Communicator& comm, std::vector<Layer>& model, float value) {
  for (Layer& gradient : model) {
    compute(gradient, value);
    comm.all_reduce(gradient);
  }
}

void step_overlapped(dlaunch::Communicator& comm, std::vector<Layer>& model, float value) {
  std::vector<dlaunch::Work> under_way;
  for (Layer& gradient : model) {
    compute(gradient, value);
    under_way.push_back(comm.start_all_reduce(gradient));  // Borrows it until it is complete.
  }
  for (dlaunch::Work& work : under_way) work.wait();
}

using Step = void (*)(dlaunch::Communicator&, std::vector<Layer>&, float);

/// The fastest of some steps, in milliseconds, on the rank that took longest.
double time_of(Step step, dlaunch::Communicator& comm, std::vector<Layer>& model, float value) {
  double best = 0;
  for (int i = 0; i < steps; ++i) {
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    step(comm, model, value);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    best = i == 0 ? took.count() : std::min(best, took.count());
  }
  comm.all_reduce(best, dlaunch::ReduceOp::max);
  return best;
}

bool right(const std::vector<Layer>& model, float wanted) {
  return std::all_of(model.begin(), model.end(), [&](const Layer& gradient) {
    return std::all_of(gradient.begin(), gradient.end(), [&](float x) { return x == wanted; });
  });
}

}  // namespace

int main() try {
  const dlaunch::World world = dlaunch::World::from_env();
  dlaunch::Communicator comm(world);
  std::vector<Layer> model(layers, Layer(layer_elements));
  const auto mine = static_cast<float>(comm.rank() + 1);
  const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);

  const double in_turn = time_of(step_in_turn, comm, model, mine);
  bool all_right = right(model, sum);
  const double overlapped = time_of(step_overlapped, comm, model, mine);
  all_right = all_right && right(model, sum);
  if (comm.rank() == 0) {
    std::printf("%d layers of %zu KiB, %d ranks: %.2f ms in turn, %.2f ms overlapped\n", layers,
                layer_elements * sizeof(float) / 1024, comm.size(), in_turn, overlapped);
  }
  if (!all_right) std::fprintf(stderr, "overlap: rank %d has a wrong sum\n", comm.rank());
  return all_right ? 0 : 1;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "overlap: %s\n", error.what());
  return 1;
}
