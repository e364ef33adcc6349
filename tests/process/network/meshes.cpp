// A rank with several communicators made from one world, each with connections of its own:
// `meshes NUMBER` says the sum of the ranks that each of them has found.
#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) return 64;
  const auto world = dlaunch::World::init();
  std::vector<dlaunch::Communicator> all;
  std::string sums;
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    all.emplace_back(world, "number " + std::to_string(i)).set_timeout(std::chrono::seconds(20));
    int sum = all.back().rank();
    all.back().all_reduce(sum);
    sums += " " + std::to_string(sum);
  }
  if (world.rank() == 0) std::printf("sums%s\n", sums.c_str());
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "meshes: %s\n", error.what());
  return 1;
}
