// The program of the tests of calls with a root: `rooted_rank OP API END TOKEN [PIPE]`. The ranks
// name different roots in OP, where no call is refused and nobody need wait: broadcast, scatter,
// gather, reduce. API is cpp or c. Then they do what END says.
#include <dlaunch/dlaunch.h>
#include <dlaunch/dlaunch.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using dlaunch::Communicator;

/// Those who are a root themselves send, or receive; no two need each other.
int own_root(const std::string& op, int rank, int size) {
  if (op == "broadcast" || op == "scatter") return rank % 2 == 1 ? rank : 0;
  return (rank + 1) % size;
}

void call(Communicator& comm, const std::string& op, int root) {
  const auto size = static_cast<std::size_t>(comm.size());
  std::array<float, 1> one{1};
  std::vector<float> all(size);
  if (op == "broadcast") comm.broadcast(one, root);
  if (op == "scatter") comm.scatter(all, one, root);
  if (op == "gather") comm.gather(one, all, root);
  if (op == "reduce") {
    std::array<float, 1> sum{};
    comm.reduce(one, sum, root);
  }
}

int say(const char* what) {
  std::fprintf(stderr, "rooted_rank: %s\n", what);
  return 1;
}

/// Until somebody writes to the pipe.
void wait_for(const char* pipe) {
  std::printf("PAUSED\n");
  std::fflush(stdout);
  const int fd = ::open(pipe, O_RDONLY | O_CLOEXEC);
  char byte = 0;
  if (fd >= 0 && ::read(fd, &byte, 1) >= 0) ::close(fd);
}

/// A rank's records of its calls are overwritten by those of messages.
void forget_calls(Communicator& comm) {
  std::array<float, 1> one{};
  for (int i = 0; i < 300; ++i) {
    if (comm.rank() == 0) comm.send(one, 1);
    if (comm.rank() == 1) comm.recv(one, 0);
  }
}

/// A call fails on the ranks that need each other, and the program ends well all the same.
void mistake(Communicator& comm) {
  std::array<float, 1> one{};
  try {
    comm.reduce(one, one, comm.rank() == 1 ? 77 : 0);
    comm.barrier();
  } catch (const dlaunch::Error&) {
  }
}

/// The ranks name different roots in one of many communicators: in the first of those that end one
/// after the other, in the last of those that live at the same time.
void call_in_many(Communicator& comm, const std::string& op, bool at_once) {
  constexpr int many = 40;
  std::vector<Communicator> alive;
  for (int i = 0; i < many; ++i) {
    auto child = comm.duplicate();
    const bool differs = i == (at_once ? many - 1 : 0);
    call(child, op, differs ? own_root(op, comm.rank(), comm.size()) : 0);
    if (at_once) alive.push_back(std::move(child));
  }
}

int run(const std::string& op, const std::string& end, const char* pipe) {
  const auto world = dlaunch::World::from_env();
  Communicator comm(world);
  if (end == "mistake") {
    mistake(comm);
    return 0;
  }
  if (end == "agreed") {
    // In as many windows of calls that nobody need wait in, and some more.
    for (int i = 0; i < 200; ++i) call(comm, op, i % comm.size());
    auto part = comm.split(comm.rank() % 2);
    for (int i = 0; i < 70; ++i) call(*part, op, 0);
    return 0;
  }
  if (end == "many_ended" || end == "many_alive") {
    call_in_many(comm, op, end == "many_alive");
    return 0;
  }
  const int root = own_root(op, comm.rank(), comm.size());
  if (end == "child") {
    auto child = comm.duplicate();
    call(child, op, root);
    return 0;
  }
  if (end == "loop") {
    int returned = 0;
    try {
      for (;; ++returned) call(comm, op, root);
    } catch (const dlaunch::Error& error) {
      std::fprintf(stderr, "rooted_rank: returned %d times\n", returned);
      return say(error.what());
    }
  }
  call(comm, op, root);
  if (end == "pause") wait_for(pipe);
  if (end == "forget") forget_calls(comm);
  return 0;
}

int run_c(const std::string& op, const std::string& end, const char* pipe) {
  dl_world* world = nullptr;
  dl_comm* comm = nullptr;
  dl_status status = dl_world_from_env(nullptr, &world);
  if (status == DL_OK) status = dl_comm_create(world, nullptr, &comm);
  if (status != DL_OK) return say(dl_last_message(nullptr));
  const int rank = dl_comm_rank(comm), size = dl_comm_size(comm);
  const int root = own_root(op, rank, size);
  float one = 1, sum = 0;
  std::vector<float> all(static_cast<std::size_t>(size));
  const dl_view x{&one, 1, 1, DL_F32, DL_HOST}, result{&sum, 1, 1, DL_F32, DL_HOST},
      every{all.data(), all.size(), 1, DL_F32, DL_HOST};
  const dl_const_view in{&one, 1, 1, DL_F32, DL_HOST},
      every_in{all.data(), all.size(), 1, DL_F32, DL_HOST};
  const dl_options here = dl_make_options(__FILE__, __LINE__, __func__);
  int returned = 0;
  do {
    if (op == "broadcast") status = dl_broadcast(comm, x, root, &here);
    if (op == "scatter") status = dl_scatter(comm, every_in, x, root, &here);
    if (op == "gather") status = dl_gather(comm, in, every, root, &here);
    if (op == "reduce") status = dl_reduce(comm, in, result, root, dl_op(DL_SUM), &here);
  } while (status == DL_OK && ++returned != 0 && end == "loop");
  int code = 0;
  if (status != DL_OK) {
    std::fprintf(stderr, "rooted_rank: returned %d times\n", returned);
    code = say(dl_last_message(comm));
  } else if (end == "pause") {
    wait_for(pipe);
  }
  dl_comm_free(comm);
  dl_world_free(world);
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) return 2;
  const char* pipe = argc > 5 ? argv[5] : "";
  return argv[2] == std::string("c") ? run_c(argv[1], argv[3], pipe) : run(argv[1], argv[3], pipe);
} catch (const dlaunch::Error& error) {
  return say(error.what());
}
