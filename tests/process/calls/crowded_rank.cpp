// A rank that tells whether its mesh takes the host's processors for its own, or for shared.
#include "collectives/call/core/flight_words.hpp"
#include "collectives/transport/links.hpp"

#include <dlaunch/world.hpp>

#include <cstdio>

int main() try {
  const auto world = dlaunch::World::from_env();
  const dlaunch::transport::Links links(world, dlaunch::flight_words());
  std::printf("rank %d %s\n", world.rank(), links.is_crowded() ? "yields" : "spins");
  return 0;
} catch (const dlaunch::Error& error) {
  std::printf("error: %s\n", error.what());
  return 1;
}
