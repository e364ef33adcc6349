// Programs that look whether started calls are complete: a look makes progress, gives the thread
// back, and finds every end.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <latch>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Event;
using testing::Outcome;
using testing::run_ranks;

namespace {

/// True when it is complete, by looks alone.
bool look_until_done(Work& work) {
  const auto deadline = Clock::now() + 60s;
  while (!work.test() && Clock::now() < deadline) continue;
  return work.done();
}

Outcome outcome_of(Work& work) {
  try {
    work.wait();
    return {};
  } catch (const Error& error) {
    return {error.errc(), error.what()};
  }
}

/// In each of the ways in which a program may end a call.
void end(Work& work, int way) {
  switch (way % 4) {
    case 0:
      return work.wait();
    case 1:
      CHECK(look_until_done(work));
      return;
    case 2:
      while (!work.wait_for(1ms)) continue;
      return;
    case 3:
      static_cast<void>(work.test());
      std::this_thread::yield();
      static_cast<void>(work.test());
      work = {};
  }
}

}  // namespace

TEST_CASE("calls of every size end in whichever way each rank waits for them") {
  for (const int size : {1, 2, 3, 4}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const auto ranks = static_cast<std::size_t>(comm.size());
      int way = comm.rank();
      for (const std::size_t count : {0u, 1u, 30u, 31u, 1000u, 40'000u, 300'000u}) {
        for (int turn = 0; turn < 4; ++turn, ++way) {
          std::vector<float> x(count, static_cast<float>(comm.rank())), in(count * ranks, 2);
          std::vector<float> out(count * ranks), root(count, static_cast<float>(comm.rank()));
          Work sum = comm.start_all_reduce(x);
          Work exchange = comm.start_all_to_all(in, out);
          Work from_last = comm.start_broadcast(root, comm.size() - 1);
          end(sum, way);
          end(from_last, way + 1);
          end(exchange, way + 2);
          const auto all = static_cast<float>(comm.size() * (comm.size() - 1) / 2);
          const auto last = static_cast<float>(comm.size() - 1);
          CHECK(x == std::vector<float>(count, all));
          CHECK(out == std::vector<float>(count * ranks, 2));
          CHECK(root == std::vector<float>(count, last));
        }
      }
    }));
  }
}

TEST_CASE("a call that was begun and left goes on behind other calls of its rank") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    Communicator other = comm.duplicate();
    for (int turn = 0; turn < 50; ++turn) {
      int x = 1, y = 1, z = 1, in = -1;
      const int me = comm.rank(), next = (me + 1) % 3, last = (me + 2) % 3;
      Work left = comm.start_all_reduce(x);
      if (turn % 3 == me) static_cast<void>(left.test());
      other.all_reduce(y);
      Work sent = comm.isend(me, next);
      comm.recv(in, last);
      sent.wait();
      CHECK(in == last);
      if (turn % 2 == 0) {
        comm.all_reduce(z);  // Behind the one that was begun.
        CHECK(left.done());
      } else {
        CHECK(look_until_done(left));
        z = 3;
      }
      CHECK(x == 3);
      CHECK(y == 3);
      CHECK(z == 3);
    }
  }));
}

TEST_CASE("reductions of the program's own run on a thread, and first calls, too") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int first = 1;
    Work settling = comm.start_all_reduce(first);
    CHECK(look_until_done(settling));
    CHECK(first == 2);
    const auto larger =
        Reduction::custom("larger", [](void* to, const void* from, std::size_t n, DType) {
          for (std::size_t i = 0; i < n; ++i) {
            auto* const value = static_cast<int*>(to) + i;
            *value = std::max(*value, static_cast<const int*>(from)[i]);
          }
        });
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<int> x(100, comm.rank());
      Work work = comm.start_all_reduce(x, larger);
      CHECK(look_until_done(work));
      CHECK(x == std::vector<int>(100, 1));
    }
    comm.barrier();
  }));
}

TEST_CASE("a look finds that a call has come to its timeout, and wait says who is absent") {
  for (const bool looks : {true, false}) {
    std::latch over(2);
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      comm.barrier();
      if (comm.rank() == 0) {
        int x = 1;
        Work work = comm.start_all_reduce(x, ReduceOp::sum, {.timeout = 200ms});
        if (looks) CHECK(look_until_done(work));
        const Outcome outcome = outcome_of(work);
        CHECK(outcome.code == Errc::timeout);
        CHECK_MESSAGE(outcome.mentions("rank 1"), outcome.text);
      }
      over.arrive_and_wait();
    }));
  }
}

TEST_CASE("a look finds wrong calls of other ranks, and says which") {
  for (const auto& outcome : run_ranks(3, [](const World& world) {
         Communicator comm(world);
         comm.set_timeout(60s);
         comm.barrier();
         std::vector<int> x(comm.rank() == 1 ? 2 : 1);
         Work work = comm.start_all_reduce(x);
         CHECK(look_until_done(work));
         work.wait();
       })) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(outcome.mentions("all_reduce #2"), outcome.text);
  }
}

TEST_CASE("what was begun and left ends with an abort, and with its communicator") {
  for (const bool aborts : {true, false}) {
    std::latch over(2);
    check_all(run_ranks(2, [&](const World& world) {
      std::optional<Communicator> comm(world);
      comm->set_timeout(60s);
      comm->barrier();
      std::vector<Work> works;
      int x = 1;
      if (comm->rank() == 0) {
        // The other rank comes to none of them.
        for (int i = 0; i < 3; ++i) works.push_back(comm->start_all_reduce(x));
        CHECK(!works[0].test());
        if (aborts) {
          std::jthread([&] { comm->abort(); }).join();
          CHECK(look_until_done(works[2]));
        } else {
          comm.reset();
        }
        for (Work& work : works) CHECK(outcome_of(work).code == Errc::aborted);
      }
      over.arrive_and_wait();
    }));
  }
}

TEST_CASE("works that were let go of are used again, with nothing of their last call") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    int completions = 0;
    for (int turn = 0; turn < 100; ++turn) {
      int x = 1, wrong = 1;
      Work failed = comm.start_broadcast(wrong, 7);
      failed.on_complete([&](const std::exception_ptr& error) { completions += error ? 1 : 0; });
      CHECK(outcome_of(failed).code == Errc::misuse);
      failed = comm.start_all_reduce(x);
      Work kept = comm.start_barrier();
      CHECK(outcome_of(kept).ok());
      CHECK(outcome_of(failed).ok());
      CHECK(x == 2);
    }
    CHECK(completions == 100);
  }));
}
