// A rank that forks while it has everything open, as programs do that let a child load data or
// write a checkpoint: `forking_rank plain|started`. The child tries what it may not do, and returns
// from main, which destroys its copies; then the ranks go on. Prints one line when all was right.
#include "runtime/world/member/membership.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace dlaunch;

bool is_misuse(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.errc() == Errc::misuse;
  }
  return false;
}

/// In the child: what it cannot do is refused, and nothing waits.
bool is_closed(const World& world, Communicator& comm, Communicator& pair) {
  std::vector<int> x{1}, all(static_cast<std::size_t>(comm.size()));
  const std::array<int, 1> self{comm.rank()};
  const std::function<void()> calls[] = {
      [&] { comm.barrier(); },
      [&] { comm.all_reduce(x); },
      [&] { pair.all_gather(x, all); },
      [&] { comm.send(x, comm.rank()); },
      [&] { static_cast<void>(comm.recv(x, comm.rank())); },
      [&] { static_cast<void>(comm.start_all_reduce(x)); },
      [&] { static_cast<void>(comm.irecv(x, comm.rank())); },
      [&] { static_cast<void>(comm.try_probe(any_source)); },
      [&] { static_cast<void>(comm.split(0)); },
      [&] { static_cast<void>(comm.group_of_members(self)); },
      [&] { static_cast<void>(comm.agree(1)); },
      [&] { static_cast<void>(comm.shrink()); },
      [&] { comm.revoke(); },
      [&] { static_cast<void>(comm.allocate(64)); },
      [&] { comm.set_stuck_after(std::chrono::seconds(1)); },
      [&] { world.store()->set("from", {}); },
      [&] { static_cast<void>(world.membership()->losses()); },
      [&] { Communicator another(world); },
  };
  int number = 0;
  for (const auto& call : calls) {
    if (!is_misuse(call)) {
      std::fprintf(stderr, "call %d was not refused in the child\n", number);
      return false;
    }
    ++number;
  }
  comm.abort();
  return true;
}

/// Every way that ranks have to each other.
void use(Communicator& comm, Communicator& pair, std::span<float> shared) {
  const int size = comm.size(), rank = comm.rank();
  for (float& element : shared) element = 1;
  comm.all_reduce(TensorView(shared));
  std::vector<int> ranks(static_cast<std::size_t>(size)), mine{rank}, theirs{-1};
  pair.all_gather(mine, ranks);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  Work sending = comm.isend(mine, next);
  static_cast<void>(comm.recv(theirs, before));
  sending.wait();
  std::vector<int> large(200'000, rank), of_root(large.size(), 0);
  comm.reduce(large, of_root, size - 1);
  comm.barrier();
  const bool right = shared.front() == static_cast<float>(size) && theirs[0] == before &&
                     ranks.back() == size - 1 &&
                     (rank != size - 1 || of_root.back() == size * (size - 1) / 2);
  if (!right) throw std::runtime_error("wrong data");
}

bool is_child = false;

}  // namespace

#ifdef __SANITIZE_ADDRESS__
// What the parent's other threads hold is nobody's in a child, which is no leak.
extern "C" [[gnu::used, gnu::visibility("default")]] int __lsan_is_turned_off() { return is_child; }
#endif

int main(int count, char** arguments) try {
  const bool starts = count > 1 && std::string_view(arguments[1]) == "started";
  const World world = World::from_env();
  Communicator comm(world);
  comm.set_timeout(std::chrono::seconds(20));
  Communicator pair = comm.duplicate();
  const SharedBuffer buffer = comm.allocate(sizeof(float) * 4096);
  std::vector<float> weights(100, static_cast<float>(comm.rank()));
  GradientReducer reducer(comm, {{"weights", TensorView(weights)}});
  Join join(reducer);
  use(comm, pair, buffer.as<float>());

  std::vector<int> late{-1}, sum{1};
  std::optional<Work> receiving, reducing;
  if (starts) {
    receiving.emplace(comm.irecv(late, (comm.rank() + 1) % comm.size(), {.tag = 7}));
    reducing.emplace(pair.start_all_reduce(sum));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    is_child = true;
    ::alarm(30);
    return is_closed(world, comm, pair) ? 0 : 1;
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("the child ended with " + std::to_string(status));
  if (starts) {
    const std::vector<int> mine{comm.rank()};
    comm.send(mine, (comm.rank() + comm.size() - 1) % comm.size(), {.tag = 7});
    receiving->wait();
    reducing->wait();
    if (late[0] != (comm.rank() + 1) % comm.size() || sum[0] != comm.size()) {
      throw std::runtime_error("what was started is wrong");
    }
  }
  use(comm, pair, buffer.as<float>());
  join.finish();
  std::printf("rank %d: all right\n", comm.rank());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "forking: %s\n", error.what());
  return 1;
}
