// A program that waits in poll(2) alone for what it has started.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Event;
using testing::run_ranks;

namespace {

/// As a program does it: it sleeps, reads, and looks.
void poll_until(int descriptor, const std::function<bool()>& holds) {
  constexpr int limit_ms = 60000;
  for (;;) {
    pollfd readable{descriptor, POLLIN, 0};
    if (::poll(&readable, 1, limit_ms) != 1) throw std::runtime_error("nothing was told");
    std::uint64_t count = 0;
    while (::read(descriptor, &count, sizeof count) == sizeof count) {
    }
    if (holds()) return;
  }
}

std::vector<int> content(std::size_t count, int seed) {
  std::vector<int> data(count);
  std::iota(data.begin(), data.end(), seed);
  return data;
}

}  // namespace

TEST_CASE("a program that sleeps in poll hears of messages") {
  for (const std::size_t count : {0u, 1u, 1000u, 40000u, 2000000u}) {
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int descriptor = comm.descriptor(), other = 1 - comm.rank();
      const auto out = content(count, comm.rank());
      for (int round = 0; round < 5; ++round) {
        std::vector<int> in(count), up_to(count + 3);
        std::vector<Work> works;
        works.push_back(comm.irecv(in, other));
        works.push_back(comm.irecv_up_to(up_to, other, {.tag = 1}));
        // Now the one is late, now the other.
        if (round % 2 == comm.rank()) poll_until(descriptor, [&] { return works[0].test(); });
        works.push_back(comm.isend(out, other));
        works.push_back(comm.issend(out, other, {.tag = 1}));
        poll_until(descriptor, [&] { return test_all(works); });
        CHECK(in == content(count, other));
        CHECK(works[1].received()->count == count);
      }
      comm.barrier();
    }));
  }
}

TEST_CASE("a program hears of messages that are complete when they are started") {
  Event sent;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int descriptor = comm.descriptor(), number = comm.rank();
    int in = -1;
    comm.sendrecv(number, 1 - number, in, 1 - number);  // Each knows the way to the other.
    comm.barrier();
    if (comm.rank() == 1) {
      comm.send(number, 0);
      sent.set();
      Work looks = comm.irecv(in, 0);
      poll_until(descriptor, [&] { return looks.test(); });
      CHECK(in == 0);
      return;
    }
    sent.wait();
    // Nothing tells of what was before.
    std::uint64_t count = 0;
    while (::read(descriptor, &count, sizeof count) == sizeof count) continue;
    Work receiving = comm.irecv(in, any_source);
    poll_until(descriptor, [&] { return receiving.test(); });
    CHECK(in == 1);
    while (::read(descriptor, &count, sizeof count) == sizeof count) continue;
    Work sending = comm.isend(number, 1);
    poll_until(descriptor, [&] { return sending.test(); });
  }));
}

TEST_CASE("a program that sleeps in poll hears of collectives, of all communicators") {
  for (const int size : {1, 2, 3, 4}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      Communicator twin = comm.duplicate();
      const int descriptor = comm.descriptor();
      CHECK(twin.descriptor() == descriptor);
      for (const std::size_t count : {1u, 1000u, 300000u}) {
        for (int round = 0; round < 5; ++round) {
          std::vector<int> x(count, 1), y(count, comm.rank());
          std::vector<Work> works;
          works.push_back(comm.start_all_reduce(x));
          works.push_back(twin.start_broadcast(y, 0));
          works.push_back(comm.start_barrier());
          std::size_t left = works.size();
          poll_until(descriptor, [&] {
            for (const std::size_t i : wait_some(works, 0s)) {
              works[i] = {};
              --left;
            }
            return left == 0;
          });
          CHECK(x == std::vector<int>(count, comm.size()));
          CHECK(y == std::vector<int>(count, 0));
        }
      }
    }));
  }
}

TEST_CASE("a program that sleeps in poll hears of what has failed") {
  Event slept;
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::array<int, 2> in{};
    const std::array out{1, 2, 3};
    if (comm.rank() == 1) {
      CHECK(slept.wait());
      return comm.send(out, 0);
    }
    Work work = comm.irecv(in, 1);
    const int descriptor = comm.descriptor();
    bool has_slept = false;
    poll_until(descriptor, [&] {
      if (!std::exchange(has_slept, true)) slept.set();
      return work.test();
    });
    work.wait();
  });
  CHECK(outcomes[0].code == Errc::mismatch);

  Event over;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 1) {
      CHECK(over.wait());
      return;
    }
    int in = 0;
    std::vector<Work> works;
    works.push_back(comm.irecv(in, 1));
    works.push_back(comm.start_all_reduce(in));
    const int descriptor = comm.descriptor();
    std::optional<std::jthread> aborts;
    poll_until(descriptor, [&] {
      if (!aborts) aborts.emplace([&] { comm.abort(); });
      return test_all(works);
    });
    for (Work& work : works) CHECK_THROWS_AS(work.wait(), Error);
    over.set();
  }));
}

TEST_CASE("a program that sleeps in poll hears of a rank that is gone") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int in = 0, sum = 1;
    comm.all_reduce(sum);
    const int descriptor = comm.descriptor();
    if (comm.rank() == 1) {
      const int out = 1;
      return comm.send(out, 0, {.tag = 1});
    }
    Work work = comm.irecv(in, 1);
    poll_until(descriptor, [&] { return work.test(); });
    CHECK_THROWS_AS(work.wait(), Error);
  }));
}

TEST_CASE("a forked child has no part in its parent's descriptor") {
  const World world(WorldInfo{}, std::make_shared<LocalStore>());
  Communicator comm(world);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      static_cast<void>(comm.descriptor());
    } catch (const Error& error) {
      ::_exit(error.errc() == Errc::misuse ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
