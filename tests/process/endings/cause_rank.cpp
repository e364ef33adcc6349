// The program of the tests of root causes: `cause_rank MODE [SECONDS]`. All ranks make two
// all_reduces; then the last one does what MODE says while the others make a third, with a timeout
// of so many seconds. The others end with 75 when that fails, the last one with 9.
#include <dlaunch/dlaunch.hpp>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <unistd.h>

namespace {

struct Late : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The culprit does this before, or instead of, the call that the others make.
void misbehave(const std::string& mode, dlaunch::Communicator& comm, std::array<float, 8>& data) {
  const dlaunch::TensorView few(data.data(), 3, dlaunch::DType::f32);
  if (mode == "exit 0") std::_Exit(0);
  if (mode == "exit 3") std::_Exit(3);
  if (mode == "kill") ::raise(SIGKILL);
  if (mode == "stop") ::raise(SIGSTOP);
  if (mode == "throw") throw Late("thrown by the program");
  if (mode == "argument")
    comm.all_reduce(few, dlaunch::ReduceOp::sum, {.timeout = -std::chrono::seconds(1)});
  if (mode == "count") comm.all_reduce(few);
  if (mode == "root") comm.broadcast(few, comm.rank());
  if (mode == "abort") comm.abort();
  if (mode == "abort") std::_Exit(0);
  while (mode == "absent") ::pause();
}

int run(const std::string& mode, int seconds) {
  const auto world = dlaunch::World::from_env();
  const bool culprit = world.rank() == world.size() - 1;
  dlaunch::Communicator comm(world);
  comm.set_timeout(std::chrono::seconds(seconds));
  std::array<float, 8> data{};
  const dlaunch::TensorView all(data.data(), data.size(), dlaunch::DType::f32);
  try {
    comm.all_reduce(all);
    comm.all_reduce(all);
    if (mode == "return 0" && culprit) return 0;
    if (culprit) misbehave(mode, comm, data);
    comm.all_reduce(all);
  } catch (const dlaunch::Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
    return culprit ? 9 : 75;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 30);
}
