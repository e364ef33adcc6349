// A rank of a job in which one rank ends in its own way while the others go on:
// `ending_rank ENDING CULPRIT TOKEN`. `plain-...` endings never call the library. A failed call is
// said on stderr; the program then ends with 75 for a lost peer, and with 1 for any other error.
#include <dlaunch/dlaunch.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace {

using namespace std::chrono_literals;

constexpr int code_peer_lost = 75;
constexpr int code_own = 3;
constexpr int code_freed = 4;

/// In no call, until a signal comes.
[[noreturn]] void compute() {
  for (;;) ::pause();
}

/// The endings that need no call.
void end_by_itself(std::string_view ending) {
  if (ending == "exit0") std::exit(0);
  if (ending == "exit3") std::exit(code_own);
  if (ending == "kill") std::raise(SIGKILL);
  if (ending == "stop") std::raise(SIGSTOP);
  if (ending == "throw") throw std::runtime_error("the culprit threw");
  if (ending == "absent") compute();
}

int plain(std::string_view ending, bool is_culprit) {
  if (is_culprit) end_by_itself(ending);
  // The others are done where nothing is to end them.
  if (ending == "exit0" || ending == "stop") return 0;
  compute();
}

/// Every rank calls this when the culprit calls something else.
void call(dlaunch::Communicator& comm, std::string_view ending, int culprit) {
  const bool is_culprit = comm.rank() == culprit;
  std::vector<float> values(8, 1.0F);
  if (ending == "argument") {
    comm.broadcast(values, is_culprit ? comm.size() : 0);
  } else if (ending == "count") {
    if (is_culprit) values.resize(9);
    comm.all_reduce(values);
  } else if (ending == "root") {
    comm.broadcast(values, is_culprit ? culprit : (culprit + 1) % comm.size());
  } else {
    comm.all_reduce(values);
  }
}

int with_runtime(std::string_view ending, int culprit) {
  const auto world = dlaunch::World::init();
  dlaunch::Communicator comm(world);
  comm.set_timeout(ending == "stop" || ending == "absent" ? 1s : 20s);
  std::vector<float> values(8, 1.0F);
  for (int i = 0; i < 3; ++i) comm.all_reduce(values);
  if (world.rank() == culprit && ending == "frees") return code_freed;
  if (world.rank() == culprit) end_by_itself(ending);
  call(comm, ending, culprit);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 64;
  const std::string_view ending = argv[1];
  const int culprit = std::atoi(argv[2]);
  constexpr std::string_view without = "plain-";
  if (ending.starts_with(without)) {
    const char* rank = std::getenv("RANK");
    return plain(ending.substr(without.size()), rank != nullptr && std::atoi(rank) == culprit);
  }
  const int code = with_runtime(ending, culprit);
  if (code == code_freed) compute();
  return code;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "ending_rank: %s\n", error.what());
  return error.code() == dlaunch::Errc::peer_lost ? code_peer_lost : 1;
}
