// A rank that aborts a communicator, from whichever thread and wherever its program is: the others
// hear of it at once.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <latch>
#include <thread>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::error_of;
using testing::run_ranks;

TEST_CASE("abort, from another thread, ends a call that waits") {
  const auto outcomes = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    if (comm.rank() == 1) {
      int x = 0;
      comm.recv(x, 0);
    }
    std::jthread other([&] { comm.abort(); });
    int x = 0;
    comm.recv(x, 1);
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == Errc::aborted);
    CHECK_MESSAGE(outcome.mentions(": rank 0 aborted the communicator [abort_test.cpp:"),
                  outcome.text);
  }
}

TEST_CASE("abort is told while its rank is in no call, in whichever thread it is") {
  for (const bool in_thread : {false, true}) {
    CAPTURE(in_thread);
    std::latch heard(2);
    const auto outcomes = run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      // All are connected.
      int x = 0;
      for (int other = 0; other < 3; ++other) comm.send(x, other);
      for (int other = 0; other < 3; ++other) comm.recv(x, other);
      comm.barrier();
      if (comm.rank() == 1) {
        for (int times = 0; times < 2; ++times) {
          if (in_thread) {
            std::jthread([&] { comm.abort(); }).join();
          } else {
            comm.abort();
          }
        }
        heard.wait();
        return comm.barrier();
      }
      const auto error = error_of([&] { comm.barrier(); });
      heard.count_down();
      if (error) throw *error;
    });
    for (const auto& outcome : outcomes) {
      CHECK(outcome.code == Errc::aborted);
      CHECK_MESSAGE(outcome.mentions(": rank 1 aborted the communicator [abort_test.cpp:"),
                    outcome.text);
    }
    CHECK_MESSAGE(outcomes[0].mentions("'world': rank 1"), outcomes[0].text);
  }
}

TEST_CASE("abort in a completion, and while its rank is in another communicator's call") {
  for (const bool in_completion : {false, true}) {
    CAPTURE(in_completion);
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      comm.barrier();
      Communicator beside = comm.duplicate();
      float x = 1;
      Work work = beside.start_all_reduce(x);
      std::jthread other;
      if (comm.rank() == 1 && in_completion) {
        work.on_complete([&](const std::exception_ptr&) { comm.abort(); });
      }
      work.wait();
      if (comm.rank() == 0) {
        const auto error = error_of([&] { comm.barrier(); });
        CHECK((error && error->errc() == Errc::aborted));
      } else if (!in_completion) {
        other = std::jthread([&] { comm.abort(); });
      }
      beside.barrier();  // Rank 0 comes when it has heard.
    }));
  }
}

TEST_CASE("a communicator that was aborted and ends without another call has told the others") {
  const auto outcomes = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    comm.barrier();
    if (comm.rank() == 1) return comm.abort();
    comm.barrier();
  });
  CHECK(outcomes[1].ok());
  for (const std::size_t other : {0U, 2U}) {
    const auto& outcome = outcomes[other];
    CHECK(outcome.code == Errc::aborted);
    CHECK_MESSAGE(outcome.mentions("'world': rank 1 aborted the communicator [abort_test.cpp:"),
                  outcome.text);
  }
}
