// One rank of a world that the test starts by hand: by_hand_rank URL TIMEOUT_MS ACTION [TOKEN].
#include "runtime/base/deadline.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using dlaunch::World;

void print_place(const World& world) {
  const dlaunch::WorldInfo& info = world.info();
  std::printf("met rank=%d size=%d local=%d/%d node=%d/%d master=%s:%s url=%s\n", info.rank,
              info.size, info.local_rank, info.local_size, info.node_rank, info.node_count,
              info.master_addr.c_str(), info.master_port.c_str(), info.init_method.c_str());
  std::fflush(stdout);
}

void await_loss(const World& world) {
  const auto deadline = dlaunch::deadline_after(std::chrono::seconds(20));
  while (dlaunch::Clock::now() < deadline) {
    for (const dlaunch::PeerLoss& loss : world.membership()->losses()) {
      std::printf("lost rank %d: %s\n", loss.rank, loss.cause.c_str());
      return;
    }
    pollfd wait{world.membership()->fd(), POLLIN, 0};
    ::poll(&wait, 1, dlaunch::poll_timeout_ms(deadline));
  }
  std::printf("no loss\n");
}

/// A child of a member, by fork(2), must find the world closed, and let go of it without harm.
void try_in_child(std::optional<World>& world) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      world->store()->set("from", dlaunch::as_bytes("child"));
      std::printf("the child used the store\n");
    } catch (const dlaunch::Error& error) {
      std::printf("child: %s\n", error.what());
    }
    world.reset();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("child ended with %d\n", WEXITSTATUS(status));
  barrier(*world->store(), "after the child", world->rank(), world->size(),
          dlaunch::deadline_after(std::chrono::seconds(20)));
}

/// Dies while a child that it has forked lives, until the test closes our stdin.
void leave_child_behind() {
  if (::fork() == 0) {
    char byte = 0;
    static_cast<void>(!::read(STDIN_FILENO, &byte, 1));
    ::_exit(0);
  }
  ::raise(SIGKILL);
}

/// Writes to each neighbour in the memory of the node, and reads what they wrote.
void share(const World& world) {
  const auto segment = world.membership()->segment();
  const auto everybody = [&](const char* name) {
    barrier(*world.store(), name, world.rank(), world.size(),
            dlaunch::deadline_after(std::chrono::seconds(20)));
  };
  const int self = segment ? segment->local_of(world.rank()) : -1;
  for (int other = 0; segment && other < segment->size(); ++other) {
    segment->ring(0, other, self).written.store(static_cast<std::uint64_t>(world.rank()) + 1000);
  }
  everybody("written");
  if (!segment) {
    std::printf("rank %d shares nothing\n", world.rank());
    return;
  }
  std::printf("rank %d is %d of %d in segment %llx, epoch %llu, and reads", world.rank(), self,
              segment->size(), static_cast<unsigned long long>(segment->id()),
              static_cast<unsigned long long>(segment->epoch()));
  for (int other = 0; other < segment->size(); ++other) {
    const auto said = segment->ring(0, self, other).written.load();
    std::printf(" %llu", static_cast<unsigned long long>(said));
  }
  std::printf("\n");
  std::fflush(stdout);
}

void act(std::optional<World>& joined, std::string_view action) {
  const World& world = *joined;
  if (action.starts_with("share")) share(world);
  if (action == "await-loss" || action == "share-wait") await_loss(world);
  // The first attempt fails, the second one has the answer.
  if (action == "share-again" && world.info().attempt == 0) throw std::runtime_error("again");
  if (action == "fork") try_in_child(joined);
  if (action == "leave-child") leave_child_behind();
  if (action == "hold" || action == "throw") {  // Until the test closes our stdin.
    char byte = 0;
    static_cast<void>(!::read(STDIN_FILENO, &byte, 1));
  }
  if (action == "throw") throw std::runtime_error("a failure of the program");
  if (action == "first") {
    dlaunch::rank_zero_first(world, [] { throw std::runtime_error("no disk space"); });
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 64;
  dlaunch::InitOptions options;
  options.timeout = std::chrono::milliseconds(std::atoi(argv[2]));
  std::optional<World> world = World::init(argv[1], options);
  print_place(*world);
  act(world, argv[3]);
  std::printf("done\n");
  std::fflush(stdout);
  return 0;
} catch (const dlaunch::Error& error) {
  std::printf("error %s: %s\n", dlaunch::to_string(error.errc()), error.what());
  return 1;
} catch (const std::exception& error) {
  std::printf("exception: %s\n", error.what());
  return 2;
}
