// A program of somebody else's: installed headers and library alone.
#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <vector>

int main() try {
  const auto world = dlaunch::World::from_env();
  dlaunch::Communicator comm(world);
  std::vector<double> x(100, comm.rank() + 1);
  comm.all_reduce(x);
  const auto values = comm.all_gather_objects(dlaunch::Tree::dict({{"rank", comm.rank()}}));
  if (comm.rank() == 0) std::printf("C++: %zu ranks, sum %g\n", values.size(), x[99]);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "consumer: %s\n", error.what());
  return 1;
}
