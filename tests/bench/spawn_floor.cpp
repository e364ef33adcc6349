// The floor of launching: posix_spawn N copies of a program, with RANK and WORLD_SIZE, wait for
// all, exit.
//   spawn_floor N PROGRAM [ARGUMENT...]
#include <cstdio>
#include <cstdlib>
#include <string>

#include <spawn.h>
#include <sys/wait.h>

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  const int count = std::atoi(argv[1]);
  ::setenv("WORLD_SIZE", argv[1], 1);
  for (int i = 0; i < count; ++i) {
    ::setenv("RANK", std::to_string(i).c_str(), 1);
    pid_t pid = 0;
    if (::posix_spawnp(&pid, argv[2], nullptr, nullptr, argv + 2, environ) != 0) return 127;
  }
  for (int i = 0; i < count; ++i) {
    int status = 0;
    if (::wait(&status) < 0 || status != 0) return 1;
  }
  return 0;
}
