#include <dlaunch/dlaunch.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

int main(int argc, char** argv) try {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  const auto world = dlaunch::World::from_env();
  dlaunch::Communicator comm(world);

  for (int step = 0; step < steps; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // This rank's share of the work.
    float loss = static_cast<float>(comm.rank()) / static_cast<float>(step + 1);
    comm.all_reduce(loss, dlaunch::ReduceOp::mean);  // Now every rank has the mean of all ranks.
    if (comm.rank() == 0) {
      std::printf("step %d: mean loss %g\n", step, loss);
      std::fflush(stdout);
    }
  }
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return 1;
}
