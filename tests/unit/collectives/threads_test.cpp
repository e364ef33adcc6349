// Several threads of one rank, each with a communicator of its own over the same connections.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::run_ranks;

namespace {

/// A rank of another world waits in vain, for longer than ranks take to find out that they wait for
/// each other.
void wait_in_vain() {
  const auto outcomes = run_ranks(2, [](const World& world) {
    if (world.rank() == 1) return;
    Communicator comm(world);
    std::vector<int> never(1);
    comm.recv(never, 1, {.timeout = 1s});
  });
  CHECK(outcomes.front().code == Errc::timeout);
}

void meet(Communicator& comm) { comm.barrier(); }

/// One thread's calls on its communicator: sizes that go through all algorithms, and messages that
/// the other side is late to receive.
void use(Communicator& comm, int thread) {
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  for (std::size_t round = 0; round < 20; ++round) {
    const std::size_t count = std::array<std::size_t, 4>{1, 1000, 70000, 300000}[round % 4];
    std::vector<float> x(count, static_cast<float>(comm.rank() + thread));
    comm.all_reduce(x);
    const int sum = comm.size() * (comm.size() - 1) / 2 + comm.size() * thread;
    CHECK(x == std::vector<float>(count, static_cast<float>(sum)));

    const std::vector<int> out(count, comm.rank() * 100 + thread);
    std::vector<int> in(count);
    auto sent = comm.isend(out, next, {.tag = thread});
    comm.barrier();
    comm.recv(in, previous, {.tag = thread});
    sent.wait();
    CHECK(in == std::vector<int>(count, previous * 100 + thread));
  }
}

void use_from_threads(int ranks, int threads) {
  for (const auto& outcome : run_ranks(ranks, [&](const World& world) {
         Communicator comm(world);
         comm.set_timeout(60s);
         std::vector<Communicator> own;
         for (int i = 0; i < threads; ++i) own.push_back(comm.duplicate());
         std::vector<std::string> errors(own.size());
         {
           std::vector<std::jthread> running;
           for (int i = 0; i < threads; ++i) {
             const auto n = static_cast<std::size_t>(i);
             running.emplace_back([&, i, n] {
               try {
                 use(own[n], i);
               } catch (const std::exception& error) {
                 errors[n] = error.what();
               }
             });
           }
         }
         CHECK(errors == std::vector<std::string>(own.size()));
         comm.barrier();
       })) {
    CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

}  // namespace

TEST_CASE("threads with a communicator each share a rank's connections") {
  for (const int ranks : {1, 2, 3, 4}) use_from_threads(ranks, 3);
}

TEST_CASE("abort ends the calls of one communicator, and not those of another thread") {
  for (const auto& outcome : run_ranks(2, [](const World& world) {
         Communicator comm(world);
         comm.set_timeout(60s);
         auto waiting = comm.duplicate();
         auto working = comm.duplicate();
         Errc ended{};
         {
           const std::jthread thread([&] {
             try {
               // Nobody sends it.
               std::vector<int> never(1);
               waiting.recv(never, 1 - waiting.rank());
             } catch (const Error& error) {
               ended = error.errc();
             }
           });
           for (int i = 0; i < 50; ++i) working.barrier();
           waiting.abort();
           for (int i = 0; i < 50; ++i) working.barrier();
         }
         CHECK(ended == Errc::aborted);
         comm.barrier();
       })) {
    CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

TEST_CASE("ranks that wait for each other's threads are none that wait for ever") {
  for (const auto& outcome : run_ranks(2, [](const World& world) {
         Communicator comm(world);
         auto mine = comm.duplicate(), other = comm.duplicate();
         if (world.rank() == 1) std::swap(mine, other);
         auto late = std::async(std::launch::async, [&] {
           meet(other);
           wait_in_vain();
           meet(other);
         });
         meet(mine);
         meet(mine);
         late.get();
       })) {
    CAPTURE(outcome.text);
    CHECK(outcome.ok());
  }
}

TEST_CASE("a thread may be about to make the call that another one of its rank made before") {
  for (const auto& outcome : run_ranks(2, [](const World& world) {
         Communicator comm(world);
         auto mine = comm.duplicate(), other = comm.duplicate();
         // By this thread both.
         meet(mine);
         meet(other);
         if (world.rank() == 1) std::swap(mine, other);
         auto late = std::async(std::launch::async, [&] {
           wait_in_vain();
           meet(other);
         });
         meet(mine);
         late.get();
       })) {
    CAPTURE(outcome.text);
    CHECK(outcome.ok());
  }
}
