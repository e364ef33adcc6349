// What a message between two ranks costs: half of the time there and back, for growing sizes. The
// ranks are threads of this process, as they are in the tests: ping_pong [rings|tcp] [seconds per
// size].
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace dlaunch;

namespace {

constexpr std::size_t sizes[] = {4,         8,          64,       512,     4u << 10,
                                 32u << 10, 256u << 10, 1u << 20, 8u << 20};
constexpr std::size_t batch_bytes = 4u << 20;

struct Figures {
  double best_us = 0, median_us = 0;
};

void there_and_back(Communicator& comm, std::vector<std::byte>& data) {
  if (comm.rank() == 0) {
    comm.send(data, 1);
    comm.recv(data, 1);
  } else {
    comm.recv(data, 0);
    comm.send(data, 0);
  }
}

/// Both ranks make the same number of batches, which rank 0 decides by the time the first took.
Figures measure(Communicator& comm, std::size_t bytes, double seconds) {
  std::vector<std::byte> data(bytes);
  const std::size_t times = std::clamp<std::size_t>(batch_bytes / (bytes + 64), 1, 2000);
  const auto batch = [&] {
    const auto from = Clock::now();
    for (std::size_t i = 0; i < times; ++i) there_and_back(comm, data);
    return std::chrono::duration<double>(Clock::now() - from).count() / static_cast<double>(times);
  };
  batch();
  std::vector<std::int64_t> batches{
      static_cast<std::int64_t>(seconds / (batch() * static_cast<double>(times))) + 3};
  comm.broadcast(batches, 0);
  std::vector<double> took;
  for (std::int64_t i = 0; i < batches[0]; ++i) took.push_back(batch() * 1e6 / 2);
  std::sort(took.begin(), took.end());
  return {took.front(), took[took.size() / 2]};
}

}  // namespace

int main(int argc, char** argv) {
  const bool rings = argc < 2 || std::strcmp(argv[1], "tcp") != 0;
  const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 0.3;
  if (rings) ::setenv("DLAUNCH_TEST_SHARED", "1", 1);
  const auto outcomes = testing::run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    if (comm.rank() == 0)
      std::printf("%10s %12s %12s   (%s)\n", "bytes", "best us", "median us",
                  rings ? "rings" : "tcp");
    for (const std::size_t bytes : sizes) {
      const Figures figures = measure(comm, bytes, seconds);
      if (comm.rank() == 0) {
        std::printf("%10zu %12.3f %12.3f\n", bytes, figures.best_us, figures.median_us);
      }
    }
  });
  for (const auto& outcome : outcomes) {
    if (!outcome.ok()) return std::fprintf(stderr, "%s\n", outcome.text.c_str()), 1;
  }
  return 0;
}
