// A rank that is struck in the midst of a call: `struck TOKEN shared|tcp|nodes CALL ELEMENTS VICTIM
// STRIKE STEP`. The others say what they are told; who takes fewer steps than STEP says how many.
#include "collectives/transport/message/fault_point.hpp"
#include "tests/process/endings/struck_calls.hpp"
#include "tests/support/apart.hpp"

#include <dlaunch/dlaunch.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include <unistd.h>

using namespace dlaunch;

namespace {

std::string strike_name;
std::atomic<int> steps_left{0}, steps_taken{0};

void strike() {
  ++steps_taken;
  if (steps_left.fetch_sub(1) != 0) return;
  if (strike_name == "kill") std::raise(SIGKILL);
  if (strike_name == "stop") std::raise(SIGSTOP);
  if (strike_name == "leave") ::_exit(0);
  if (strike_name == "throw") throw std::runtime_error("struck");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8 || !testing::struck_calls().contains(argv[3])) return 64;
  const auto elements = static_cast<std::size_t>(std::atoll(argv[4]));
  const int victim = std::atoi(argv[5]);
  strike_name = argv[6];
  int rank = -1;
  try {
    World world = World::init();
    if (std::string_view(argv[2]) == "tcp") {
      world =
          World(world.info(), world.store(), std::make_shared<testing::Apart>(world.membership()));
    }
    rank = world.rank();
    Communicator comm(world);
    comm.set_timeout(std::chrono::milliseconds(strike_name == "stop" ? 300 : 15'000));
    const testing::StruckCall& call = testing::struck_calls().at(argv[3]);
    call(comm, elements);  // Teams and connections are there.
    comm.barrier();
    if (rank == victim) {
      steps_left = std::atoi(argv[7]);
      transport::armed_fault_point = strike;
    }
    call(comm, elements);
    transport::armed_fault_point = nullptr;
    if (rank == victim) std::printf("%d steps\n", steps_taken.load());
    // A rank that had no more to do in the call is told in the next one.
    comm.barrier();
    comm.barrier();
    return 0;
  } catch (const Error& error) {
    std::printf("rank %d told %d: %s\n", rank, static_cast<int>(error.errc()), error.what());
  } catch (const std::exception& error) {
    std::printf("rank %d threw: %s\n", rank, error.what());
  }
  std::fflush(stdout);
  return 3;
}
