// Shows a barrier: no rank prints its results before every rank has printed its message.
//
//   dlaunch --nproc_per_node 4 barrier                  under the launcher
//   dlaunch --nproc_per_node 4 barrier --no-barrier     and what happens without
//   barrier --nproc_per_node 4                          the program starts its own processes
#include <dlaunch/dlaunch.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

struct Arguments {
  bool with_barrier = true;
  int nproc_per_node = 0;  // 0: this process is one of those that a launcher started.
};

int usage() {
  std::fprintf(stderr, "usage: barrier [--no-barrier] [--nproc_per_node N]\n");
  return 64;
}

void work(const dlaunch::World& world, const Arguments& arguments) {
  dlaunch::Communicator comm(world);
  std::printf("%s\n", dlaunch::ProcessInfo::of(world).to_json().c_str());
  if (arguments.with_barrier) {
    std::printf("I HAVE BARRIER DUDE! WAITING FOR ALL PROCESSES TO SYNCHRONIZE...\n");
    // Also waits until what was printed so far has come out, of every rank.
    comm.barrier({.ordered_output = true});
  } else {
    std::printf("I HAVE NO BARRIER DUDE!\n");
  }
  std::printf("Results: [[1, 2, 3]]\n");

  std::int64_t sum[] = {world.rank() + 1};
  comm.all_reduce(sum);
  if (world.rank() == 0) {
    std::printf("Sum of 1 to %d over %d ranks: %lld\n", world.size(), world.size(),
                static_cast<long long>(sum[0]));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--no-barrier") {
      arguments.with_barrier = false;
    } else if ((argument == "--nproc_per_node" || argument == "--nproc-per-node") && i + 1 < argc) {
      arguments.nproc_per_node = std::atoi(argv[++i]);
      if (arguments.nproc_per_node < 1) return usage();
    } else {
      return usage();
    }
  }
  if (arguments.nproc_per_node > 0) {
    dlaunch::spawn(arguments.nproc_per_node,
                   [&](int, const dlaunch::World& world) { work(world, arguments); });
  } else {
    work(dlaunch::World::from_env(), arguments);
  }
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "barrier: %s\n", error.what());
  return 1;
}
