// A rank that walks the grid: every call with every type and count, around every size at which the
// table has another algorithm, and large ones, against plain loops. `grid_rank`: exits 0 and prints
// one line when all was right; else it says which call was wrong, where.
#include "collectives/algorithms/select/select.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/grid.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <exception>
#include <set>

namespace {

using dlaunch::testing::is_full;

using namespace dlaunch;
namespace grid = testing::grid;

/// Bytes; beyond those a call takes longer than it is worth here.
constexpr std::size_t limit_max = std::size_t{1} << 20;

/// Just below, at and above each limit of the table for such ranks.
std::set<std::size_t> sizes_around_limits(const WorldInfo& world) {
  const std::size_t most = is_full() ? limit_max : limit_max / 64;
  std::set<std::size_t> sizes;
  for (const auto& row : algorithms::built_in_table().rows()) {
    const std::size_t limit = row.limit(world.size, world.node_count);
    if (limit > most) continue;
    for (const std::size_t bytes : {limit - 1, limit, limit + 1}) sizes.insert(bytes);
  }
  return sizes;
}

/// Several chunks of everything, and not a whole number of them.
void check_large(Communicator& comm) {
  constexpr std::size_t count = 350'003;
  grid::check_movement<float>(comm, count);
  grid::check_parts<float>(comm, count);
  std::vector<float> x(count, static_cast<float>(comm.rank()));
  comm.all_reduce(x);
  const auto n = static_cast<float>(comm.size());
  if (x != std::vector<float>(count, n * (n - 1) / 2)) {
    throw std::runtime_error("all_reduce of 350003 f32 on rank " + std::to_string(comm.rank()) +
                             " is wrong");
  }
}

void walk(const World& world) {
  Communicator comm(world);
  comm.set_timeout(std::chrono::seconds(60));
  for (const std::size_t count : grid::counts()) grid::check_all_types(comm, count);
  for (const std::size_t bytes : sizes_around_limits(world.info())) {
    grid::check_types<std::uint8_t>(comm, bytes);
  }
  check_large(comm);
  comm.barrier();
  std::printf("grid: rank %d of %d on %d nodes: all right\n", world.rank(), world.size(),
              world.info().node_count);
}

}  // namespace

int main() try {
  walk(World::from_env());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "grid: %s\n", error.what());
  return 1;
}
