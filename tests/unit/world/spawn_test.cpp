#include "runtime/base/deadline.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/spawn.hpp>

#include <cstdlib>
#include <stdexcept>

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

Clock::time_point late() { return deadline_after(std::chrono::seconds(30)); }

/// The SpawnError of a call that must fail.
SpawnError failure(const auto& act) {
  try {
    act();
  } catch (const SpawnError& error) {
    return error;
  }
  FAIL("spawn returned");
  std::abort();
}

/// Blocks until this rank is told of a loss, then throws it, as a collective does.
void await_loss(const World& world) {
  for (;;) {
    for (const PeerLoss& loss : world.membership()->losses()) {
      throw Error(Errc::peer_lost, "rank " + std::to_string(loss.rank) + ": " + loss.cause);
    }
    pollfd wait{world.membership()->fd(), POLLIN, 0};
    ::poll(&wait, 1, poll_timeout_ms(late()));
  }
}

}  // namespace

TEST_CASE("spawned workers find each other as a world") {
  spawn(4, [](int rank, const World& world) {
    const WorldInfo& info = world.info();
    const bool right = world.rank() == rank && info.size == 4 && info.local_rank == rank &&
                       info.local_size == 4 && info.node_count == 1 &&
                       info.init_method == "dlaunch://" && info.master_addr == "127.0.0.1";
    const std::string mine = std::to_string(rank);
    const auto all = all_gather(*world.store(), "ranks", rank, 4, as_bytes(mine), late());
    return right && all.size() == 4 && as_text(all[3]) == "3" ? 0 : 9;
  });
}

TEST_CASE("workers that take no world may join it by name, or not at all") {
  spawn(3, [](int) {});
  spawn(2, [](int rank) {
    const World world = World::init("dlaunch://");
    barrier(*world.store(), "again", rank, 2, late());
    return world.rank() == rank ? 0 : 9;
  });
  spawn(1, [](int, const World&) {});
}

TEST_CASE("the first failure comes back with its rank and its exit code") {
  const SpawnError error = failure([] {
    spawn(3, [](int rank, const World& world) {
      if (rank == 1) return 7;
      await_loss(world);
      return 0;
    });
  });
  CHECK(error.rank() == 1);
  CHECK(error.exit_code() == 7);
  CHECK(error.signal() == 0);
  CHECK(std::string(error.what()).find("rank 1 of 3") != std::string::npos);
  CHECK(std::string(error.what()).find("exited with 7") != std::string::npos);
}

TEST_CASE("a worker killed by a signal is named by it, though its peers end first") {
  const SpawnError error = failure([] {
    spawn(3, [](int rank, const World& world) {
      if (rank == 2) ::raise(SIGKILL);
      await_loss(world);
    });
  });
  CHECK(error.rank() == 2);
  CHECK(error.exit_code() == -1);
  CHECK(error.signal() == SIGKILL);
  CHECK(std::string(error.what()).find("killed by SIGKILL") != std::string::npos);
}

TEST_CASE("an exception's code and text come back") {
  const SpawnError error = failure([] {
    spawn(2, [](int rank) {
      if (rank == 0) throw Error(Errc::mismatch, "apples and pears");
    });
  });
  CHECK(error.rank() == 0);
  CHECK(error.code() == Errc::mismatch);
  CHECK(std::string(error.what()).find("apples and pears") != std::string::npos);
  CHECK(failure([] { spawn(1, [](int) { throw std::runtime_error("plain"); }); }).exit_code() == 1);
}

TEST_CASE("workers that ignore the failure, and SIGTERM, are killed") {
  SpawnOptions options;
  options.failure_grace = std::chrono::milliseconds(10);
  options.shutdown_timeout = std::chrono::milliseconds(10);
  const SpawnError error = failure([&] {
    spawn(
        3,
        [](int rank) {
          ::signal(SIGTERM, SIG_IGN);
          if (rank == 0) return 1;
          for (;;) ::pause();
        },
        options);
  });
  CHECK(error.rank() == 0);
}

TEST_CASE("a worker that leaves while the world forms ends it for the others") {
  const SpawnError error = failure([] {
    spawn(2, [](int rank) {
      if (rank == 0) return 0;
      const World world = World::init("dlaunch://");
      return 0;
    });
  });
  CHECK(error.rank() == 0);
  CHECK(error.exit_code() == 0);
  CHECK(std::string(error.what()).find("exited with 0 before the others") != std::string::npos);
}

TEST_CASE("a worker that returns 0 while others wait for it is to blame, not who fails for it") {
  const SpawnError error = failure([] {
    spawn(3, [](int rank, const World& world) {
      if (rank == 1) ::_exit(0);  // Without a word.
      // As a communicator does, where a call of its own failed.
      try {
        await_loss(world);
      } catch (const Error& lost) {
        world.membership()->report(lost, {.fault = Fault::lost, .ranks = {1}});
        throw;
      }
      return 0;
    });
  });
  CHECK(error.rank() == 1);
  CHECK(error.exit_code() == 0);
  CHECK(std::string(error.what()).find("exited with 0 before the others") != std::string::npos);
}

TEST_CASE("kill -9 of the process that spawned leaves no worker behind") {
  constexpr int workers = 3;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const unique_fd reading(ends[0]);
  unique_fd writing(ends[1]);
  const pid_t parent = ::fork();
  REQUIRE(parent >= 0);
  if (parent == 0) {
    spawn(workers, [&](int rank) {
      ::signal(SIGTERM, SIG_IGN);
      ::alarm(60);  // Ends it if the test fails.
      const char name = static_cast<char>('0' + rank);
      if (::write(writing.get(), &name, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    });
    ::_exit(0);
  }
  writing.reset();
  // Every process has the writing end, so the pipe's end is the end of them all.
  const auto read_one = [&](char& byte) {
    pollfd wait{reading.get(), POLLIN, 0};
    REQUIRE(::poll(&wait, 1, poll_timeout_ms(late())) == 1);
    return ::read(reading.get(), &byte, 1);
  };
  char byte = 0;
  for (int i = 0; i < workers; ++i) REQUIRE(read_one(byte) == 1);
  REQUIRE(::kill(parent, SIGKILL) == 0);
  CHECK(read_one(byte) == 0);
  int status = 0;
  CHECK(::waitpid(parent, &status, 0) == parent);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("a count that cannot be is misuse") {
  for (const int count : {0, -1, 100000}) {
    CHECK_THROWS_AS(spawn(count, [](int) {}), Error);
  }
}
