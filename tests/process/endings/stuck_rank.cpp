// The program of the tests of stuck jobs: `stuck_rank MODE TOKEN [SECONDS]`. All ranks make two
// all_reduces; then the last one does what MODE says while the others make a third, with a timeout
// of so many seconds.
#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

[[noreturn]] void wait_for_death() {
  for (;;) ::pause();
}

void say(const char* line) {
  std::printf("%s\n", line);
  std::fflush(stdout);
}

void misbehave(const std::string& mode, dlaunch::Communicator& comm, float* data) {
  if (mode == "compute" || mode == "own limit") wait_for_death();
  for (int i = 0; mode == "declare" && i < 10; ++i) {
    if (!dlaunch::report_progress()) std::abort();
    ::usleep(400'000);
  }
  if (mode == "extend") {
    if (!dlaunch::extend_deadline(std::chrono::seconds(30))) std::abort();
    ::usleep(8'000'000);
  }
  if (mode == "exit") std::_Exit(0);
  if (mode == "kill") ::raise(SIGKILL);
  if (mode == "stop") ::raise(SIGSTOP);
  if (mode == "elsewhere") {
    auto alone = comm.group_of_members(std::array{comm.rank(), 0});
    alone.barrier();
  }
  if (mode == "differ") comm.broadcast(dlaunch::TensorView(data, 1, dlaunch::DType::f32), 0);
}

/// The ranks wait for each other in different calls.
[[noreturn]] void cross(const std::string& mode, dlaunch::Communicator& comm, float* data) {
  const int last = comm.size() - 1;
  const dlaunch::TensorView one(data, 1, dlaunch::DType::f32);
  if (mode == "group") {
    auto part = comm.group(std::array{0, last});
    if (comm.rank() == 0) part->barrier();
    if (comm.rank() != 0) comm.barrier();
  }
  if (mode == "swapped") {
    auto first = comm.duplicate(), second = comm.duplicate();
    if (comm.rank() == last) second.barrier();
    if (comm.rank() != last) first.barrier();
  }
  if (mode == "crossed" && comm.rank() == last) comm.recv(one, 0);
  if (mode == "probed" && comm.rank() == last) static_cast<void>(comm.probe(0));
  if (mode == "ssent" && comm.rank() == last) comm.ssend(one, 0);
  const bool meets = mode == "crossed" || mode == "probed" || mode == "ssent";
  if (meets && comm.rank() != last) comm.barrier();
  if (mode == "ssends") comm.ssend(one, last - comm.rank());
  if (mode == "sends") {
    // More than is taken in before it is asked for.
    const std::vector<float> large(std::size_t{8} << 20);
    comm.send(large, last - comm.rank());
  }
  std::abort();
}

int run(const std::string& mode, int seconds) {
  const auto world = dlaunch::World::from_env();
  if (mode == "silent" && world.rank() == 1) wait_for_death();
  dlaunch::Communicator comm(world);
  comm.set_timeout(std::chrono::seconds(seconds));
  if (mode == "own limit") comm.set_stuck_after(std::chrono::milliseconds(300));
  float data[1] = {1};
  comm.all_reduce(data);
  comm.all_reduce(data);
  say("READY");
  if (mode.starts_with("roots")) {
    // All are done with it, and compute, or hear of it in the next one.
    const int last = comm.size() - 1;
    comm.broadcast(dlaunch::TensorView(data, 1, dlaunch::DType::f32),
                   comm.rank() < last ? 0 : last);
    if (mode == "roots") wait_for_death();
  }
  const std::array crossing{"group", "swapped", "crossed", "probed", "ssent", "ssends", "sends"};
  if (std::find(crossing.begin(), crossing.end(), mode) != crossing.end()) cross(mode, comm, data);
  if (comm.rank() == comm.size() - 1) misbehave(mode, comm, data);
  if (mode == "first node" && world.info().node_rank == 0) wait_for_death();
  comm.all_reduce(data);
  say("DONE");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  return run(argv[1], argc > 3 ? std::atoi(argv[3]) : 30);
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "stuck_rank: %s\n", error.what());
  return error.errc() == dlaunch::Errc::peer_lost ? 75 : 1;
}
