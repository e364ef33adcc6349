// A rank that is built with AddressSanitizer and gives away memory that a call needs: `freed_rank
// recv|late|send|collective|short`. Rank 0 does so, and prints the error; rank 1 is in no call
// meanwhile.
#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

namespace {

using namespace dlaunch;
using namespace std::chrono_literals;

constexpr std::size_t many = 1u << 20;

void mistake(Communicator& comm, Store& store, std::string_view how) {
  auto data = std::make_unique<std::vector<float>>(many);
  if (how == "short") return comm.broadcast({data->data(), many + 1, DType::f32}, 0);
  Work before, work;
  if (how == "recv" || how == "late") work = comm.irecv(*data, 1);
  if (how == "send") work = comm.isend(*data, 1);
  if (how == "collective") {
    before = comm.start_barrier();  // Before this one is over the next does not begin.
    work = comm.start_all_reduce(*data);
  }
  data.reset();
  store.set("freed", {});
  if (how == "late") {  // The message comes while this rank waits for another one.
    int small = 0;
    comm.recv(small, 1, {.tag = 1});
  }
  work.wait();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const World world = World::from_env();
  Communicator comm(world);
  comm.set_timeout(60s);
  comm.barrier();
  if (comm.rank() != 0) {
    world.store()->wait("freed", Clock::now() + 60s);
    try {
      if (argv[1] == std::string_view("late")) {
        const std::vector<float> data(many);
        comm.send(data, 0);
        const int small = 0;
        comm.send(small, 0, {.tag = 1});
      }
      comm.barrier();
    } catch (const Error&) {  // Rank 0 has ended.
    }
    return 0;
  }
  try {
    mistake(comm, *world.store(), argv[1]);
  } catch (const Error& error) {
    std::printf("%s: %s\n", to_string(error.errc()), error.what());
    std::fflush(stdout);
  }
  world.store()->set("freed", {});
  return 0;
}
