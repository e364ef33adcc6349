// Two processes, two terminals, four variables, and no launcher:
//
//   MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2 RANK=0 ./ping_pong
//   MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2 RANK=1 ./ping_pong
#include <dlaunch/dlaunch.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>

int main() try {
  using namespace std::chrono;
  const dlaunch::World world = dlaunch::World::init("env://", {.timeout = minutes(1)});
  if (world.size() != 2) {
    std::fprintf(stderr, "ping_pong: two ranks play, not %d\n", world.size());
    return 64;
  }
  dlaunch::Communicator comm(world);
  constexpr int rounds = 1000;
  const int other = 1 - world.rank();
  std::int64_t ball[] = {0};

  const auto start = steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    if (world.rank() == 0) {
      comm.send(ball, other);
      comm.recv(ball, other);
    } else {
      comm.recv(ball, other);
      ++ball[0];
      comm.send(ball, other);
    }
  }
  const duration<double, std::micro> elapsed = steady_clock::now() - start;
  std::printf("rank %d: the ball came back %lld times, %.1f us each\n", world.rank(),
              static_cast<long long>(ball[0]), elapsed.count() / rounds);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "ping_pong: %s\n", error.what());
  return 1;
}
