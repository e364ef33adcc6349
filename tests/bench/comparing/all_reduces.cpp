// `all_reduces N`: so many all_reduces of four bytes, for comparing.py.
#include <dlaunch/dlaunch.hpp>

#include <cstdlib>

int main(int argc, char** argv) {
  dlaunch::Communicator comm(dlaunch::World::from_env());
  float x[1] = {1};
  const int calls = argc > 1 ? std::atoi(argv[1]) : 1;
  for (int i = 0; i < calls; ++i) comm.all_reduce(x);
  return 0;
}
