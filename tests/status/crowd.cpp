// Agents without workers, for the pages of a daemon: N nodes of one job that send heartbeats until
// this is killed.
//
//     status_crowd PORT JOB NODES WORKERS_PER_NODE [SILENT]
//
// The last SILENT of them hang up once all have their places.
#include "tests/bench/crowd.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

using namespace dlaunch;
using namespace dlaunch::bench;

int main(int argc, char** argv) {
  if (argc < 5) fail("status_crowd PORT JOB NODES WORKERS_PER_NODE [SILENT]");
  const Address at = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))).at(0);
  const std::size_t size = std::strtoull(argv[3], nullptr, 10);
  const std::size_t silent = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 0;
  allow_agents(size);
  Crowd crowd(at, size, std::atoi(argv[4]), argv[2]);
  crowd.until(Agent::State::meeting, size);
  for (std::size_t i = size - std::min(silent, size); i < size; ++i) crowd.agents()[i].hang_up();
  // At most a fifth at a time, so that their ages differ.
  for (std::size_t turn = 0;; ++turn) {
    for (std::size_t i = turn % 5; i < size - std::min(silent, size); i += 5) {
      crowd.agents()[i].beat();
    }
    crowd.read_what_comes();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}
