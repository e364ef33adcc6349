// A rank that makes one call and leaves at once, while others may still be in it: `leave_rank
// shared|tcp CALL ELEMENTS`.
#include "tests/process/endings/struck_calls.hpp"
#include "tests/support/apart.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace dlaunch;

namespace {

/// One rank sends more than a ring or a socket's buffer holds, and leaves; the other one takes it
/// when it has heard of that.
void send_and_leave(Communicator& comm, std::size_t elements) {
  std::vector<int> data(elements);
  if (comm.rank() == 0) {
    std::iota(data.begin(), data.end(), 1);
    comm.send(data, comm.size() - 1);
  } else if (comm.rank() == comm.size() - 1) {
    static_cast<void>(comm.probe(0));
    comm.recv(data, 0);
    for (std::size_t i = 0; i < elements; ++i) {
      if (data[i] != static_cast<int>(i) + 1) throw Error(Errc::internal, "another message came");
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  const std::string call = argv[2];
  const auto elements = static_cast<std::size_t>(std::atoll(argv[3]));
  World world = World::init();
  if (std::string(argv[1]) == "tcp") {
    world =
        World(world.info(), world.store(), std::make_shared<testing::Apart>(world.membership()));
  }
  Communicator comm(world);
  comm.set_timeout(std::chrono::seconds(60));
  if (call == "message") {
    send_and_leave(comm, elements);
  } else {
    testing::struck_calls().at(call)(comm, elements);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "leave_rank: %s\n", error.what());
  return 3;
}
