#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <vector>

int main() try {
  const auto world = dlaunch::World::from_env();  // who am I, and where are the others
  dlaunch::Communicator comm(world);

  std::vector<float> gradient(1 << 16, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(gradient, dlaunch::ReduceOp::mean, {.timeout = std::chrono::seconds(30)});

  if (comm.rank() == 0) std::printf("%d ranks, mean %g\n", comm.size(), gradient[0]);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "all_reduce: %s\n", error.what());
  return error.code() == dlaunch::Errc::peer_lost ? 75 : 1;
}
