// Ranks with different numbers of inputs: rank r has N + r. Two parameters, y = w x + b, whose
// gradients are summed in one bucket.
//
//   dlaunch --nproc_per_node 2 uneven_inputs --case 1 --inputs 5
//
//   1  the loop under a join                     all finish
//   2  the plain loop                            an error names who is absent, and why
//   3  the plain loop, a barrier in each step    the same
//   4  under a join, a barrier in each step      an error names the shadow and the barrier
//   5  the plain loop, a barrier after it        an error names the gradients and the barrier
//   6  under a join, a barrier after it          all finish
#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>

namespace {

struct Arguments {
  int number = 1;  // The number of the case.
  int inputs = 5;
};

struct Linear {
  float w = 0.5F, b = 0.25F;
  float w_gradient = 0, b_gradient = 0;
};

/// One input: forward, backward, and a step down the slope of the mean.
void train(dlaunch::GradientReducer& reducer, Linear& model, float x) {
  reducer.begin();
  const float slope = 2 * (model.w * x + model.b - (2 * x + 1));
  model.b_gradient = slope;
  reducer.ready(1);
  model.w_gradient = slope * x;
  reducer.ready(0);
  reducer.finish();
  model.w -= 0.05F * model.w_gradient;
  model.b -= 0.05F * model.b_gradient;
}

void work(const dlaunch::World& world, const Arguments& arguments) {
  dlaunch::Communicator comm(world);
  Linear model;
  dlaunch::GradientReducer reducer(
      comm, {{"w", model.w, model.w_gradient, {1, 1}}, {"b", model.b, model.b_gradient, {1}}});
  const int number = arguments.number;
  const bool joined = number == 1 || number == 4 || number == 6;
  const bool barrier_in_loop = number == 3 || number == 4;

  int inputs = 0;
  std::optional<dlaunch::Join> join;
  if (joined) join.emplace(reducer);
  for (; inputs < arguments.inputs + comm.rank(); ++inputs) {
    train(reducer, model, static_cast<float>(inputs + 1) + 0.5F * static_cast<float>(comm.rank()));
    if (barrier_in_loop) comm.barrier();
  }
  if (join) join->finish();
  if (number == 5 || number == 6) comm.barrier();

  std::printf("Rank %d has exhausted all %d of its inputs!\n", comm.rank(), inputs);
  if (joined) {
    std::printf("w = %.6f, b = %.6f\n", static_cast<double>(model.w), static_cast<double>(model.b));
  }
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) return false;
    const int value = std::atoi(argv[i + 1]);
    if (name == "--case" && value >= 1 && value <= 6) {
      arguments.number = value;
    } else if (name == "--inputs" && value >= 0) {
      arguments.inputs = value;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: uneven_inputs [--case 1..6] [--inputs N]\n");
    return 64;
  }
  work(dlaunch::World::from_env(), arguments);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "uneven_inputs: %s\n", error.what());
  return error.code() == dlaunch::Errc::peer_lost ? 75 : 1;
}
