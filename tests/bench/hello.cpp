// The smallest worker that is ready to communicate: initialise, one barrier, leave.
//   hello [--then-wait]      with it, waits in a second barrier that rank 1 never enters
#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <string_view>

#include <unistd.h>

int main(int argc, char** argv) try {
  const dlaunch::World world = dlaunch::World::from_env();
  dlaunch::Communicator comm{world};
  comm.barrier();
  if (argc > 1 && std::string_view(argv[1]) == "--then-wait") {
    if (comm.rank() == 1) {
      for (;;) ::pause();
    }
    comm.barrier();
  }
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "hello: %s\n", error.what());
  return 75;
}
