// Ranks of which one dies, stands still, or makes another call:
// `faults_ours kill|stop|mismatch shared|tcp RUNS`. With `stop` a call has a limit of one second.
// Lines of JSON with the moment, in ns of the machine's monotonic clock, at which each rank had its
// error.
#include "tests/support/apart.hpp"

#include <dlaunch/dlaunch.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

using namespace dlaunch;

namespace {

constexpr std::size_t elements = 16 << 10;

std::int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// The ranks make all_reduces until somebody kills or stops the one that says its number.
void until_struck(Communicator& comm) {
  std::vector<float> x(elements);
  comm.all_reduce(x);
  if (comm.rank() == comm.size() - 1) say("{\"victim\": " + std::to_string(::getpid()) + "}");
  try {
    for (;;) comm.all_reduce(x);
  } catch (const Error& error) {
    const auto when = now_ns();
    say("{\"rank\": " + std::to_string(comm.rank()) + ", \"told\": " + std::to_string(when) +
        ", \"code\": " + std::to_string(static_cast<int>(error.errc())) + "}");
  }
}

/// One mismatch after the other, each on a communicator of its own.
void mismatches(Communicator& comm, int runs) {
  std::vector<float> x(elements);
  for (int run = 0; run < runs; ++run) {
    Communicator broken = comm.duplicate();
    broken.all_reduce(x);
    comm.barrier();
    const auto began = now_ns();
    std::int64_t told = 0;
    try {
      if (comm.rank() == comm.size() - 1) {
        broken.barrier();
      } else {
        broken.all_reduce(x);
      }
      broken.barrier();
    } catch (const Error& error) {
      if (error.errc() == Errc::mismatch) told = now_ns();
    }
    say("{\"run\": " + std::to_string(run) + ", \"rank\": " + std::to_string(comm.rank()) +
        ", \"began\": " + std::to_string(began) + ", \"told\": " + std::to_string(told) + "}");
    comm.barrier();
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  World world = World::init();
  if (std::string(argv[2]) == "tcp") {
    world =
        World(world.info(), world.store(), std::make_shared<testing::Apart>(world.membership()));
  }
  Communicator comm(world);
  if (std::string(argv[1]) == "mismatch") {
    mismatches(comm, std::atoi(argv[3]));
  } else {
    if (std::string(argv[1]) == "stop") comm.set_timeout(std::chrono::seconds(1));
    until_struck(comm);
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "faults_ours: %s\n", error.what());
  return 1;
}
