// Every rank says where it stands in the world; rank 0 prepares something first.
//
//   dlaunch --nproc_per_node 4 ranks
#include <dlaunch/dlaunch.hpp>

#include <cstdio>

int main() try {
  const dlaunch::World world = dlaunch::World::from_env();
  const dlaunch::WorldInfo& info = world.info();

  // A download, say: one process does it, and the others find it done.
  dlaunch::rank_zero_first(world, [&] {
    std::printf("rank %d of %d: local rank %d of %d, node %d of %d, on %s%s\n", info.rank,
                info.size, info.local_rank, info.local_size, info.node_rank, info.node_count,
                info.hostname.c_str(), info.is_global_zero() ? ", the first" : "");
    std::fflush(stdout);
  });
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "ranks: %s\n", error.what());
  return 1;
}
