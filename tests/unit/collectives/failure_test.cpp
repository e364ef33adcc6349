// The errors of all ranks when ranks disagree, stay away, die or give up.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Event;
using testing::FakeMembership;
using testing::Outcome;
using testing::run_ranks;

namespace {

using Call = std::function<void(Communicator&)>;

/// Each rank makes its own call, then as many barriers as it takes to hear of the others.
std::vector<Outcome> disagree(const std::vector<Call>& calls) {
  return run_ranks(static_cast<int>(calls.size()), [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    comm.barrier();
    calls[static_cast<std::size_t>(comm.rank())](comm);
    comm.barrier();
    comm.barrier();
  });
}

std::vector<float>& floats(std::size_t count) {
  thread_local std::vector<float> x;
  x.assign(count, 1);
  return x;
}

std::vector<std::shared_ptr<FakeMembership>> memberships(int size) {
  std::vector<std::shared_ptr<FakeMembership>> all;
  for (int i = 0; i < size; ++i) all.push_back(std::make_shared<FakeMembership>());
  return all;
}

}  // namespace

TEST_CASE("a wrong argument on one rank reaches the others") {
  const auto outcomes = disagree({
      [](Communicator& comm) { comm.broadcast(floats(8), 0); },
      [](Communicator& comm) { comm.broadcast(floats(8), 7); },
      [](Communicator& comm) { comm.broadcast(floats(8), 0); },
  });
  CHECK(outcomes[1].code == Errc::misuse);
  CHECK_MESSAGE(outcomes[1].mentions("there is no rank 7"), outcomes[1].text);
  // The root, and whom it served directly, had returned; their next call tells them.
  for (const int rank : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    CHECK(!outcome.ok());
    CHECK_MESSAGE(outcome.mentions("there is no rank 7"), outcome.text);
  }
}

TEST_CASE("a timeout that cannot be is a wrong argument like any other, and says where it stands") {
  const auto outcomes = disagree({
      [](Communicator& comm) { comm.all_reduce(floats(8)); },
      [](Communicator& comm) { comm.all_reduce(floats(8), {}, {.timeout = -1s}); },
      [](Communicator& comm) { comm.all_reduce(floats(8)); },
  });
  CHECK(outcomes[1].code == Errc::misuse);
  CHECK_MESSAGE(outcomes[1].mentions("a timeout is not negative [failure_test.cpp:"),
                outcomes[1].text);
  for (const std::size_t rank : {0U, 2U}) {
    CHECK(outcomes[rank].code == Errc::mismatch);
    CHECK_MESSAGE(outcomes[rank].mentions("a timeout is not negative"), outcomes[rank].text);
  }
}

TEST_CASE("the same wrong argument on all ranks leaves the communicator usable") {
  const auto outcomes = run_ranks(4, [](const World& world) {
    Communicator comm(world);
    for (int i = 0; i < 3; ++i) {
      try {
        comm.broadcast(floats(8), -1);
        throw std::runtime_error("not refused");
      } catch (const Error& error) {
        if (error.errc() != Errc::misuse) throw;
      }
      comm.barrier();
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("a timeout names who is absent and what they were last seen doing") {
  Event over;
  const auto outcomes = run_ranks(4, [&](const World& world) {
    Communicator comm(world);
    comm.barrier();
    if (comm.rank() == 2) {
      if (!over.wait()) throw std::runtime_error("nobody timed out");
      return;
    }
    try {
      comm.all_reduce(floats(8), ReduceOp::sum, {.timeout = 100ms});
    } catch (const Error&) {
      over.set();
      throw;
    }
  });
  CHECK(outcomes[2].ok());
  for (const int rank : {0, 1, 3}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    CHECK(outcome.code == Errc::timeout);
    CHECK_MESSAGE(outcome.mentions("all_reduce #2"), outcome.text);
    CHECK_MESSAGE(outcome.mentions("absent: rank 2 ("), outcome.text);
    CHECK_MESSAGE(!outcome.mentions("rank 1 ("), outcome.text);
    CHECK_MESSAGE(outcome.mentions("[failure_test.cpp:"), outcome.text);
  }
}

TEST_CASE("a rank that waits elsewhere is said to be there") {
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    if (comm.rank() == 0) {
      comm.barrier({.timeout = 100ms});
    } else {
      int x = 0;
      comm.recv(x, 0, {.timeout = 20s, .tag = 5});
    }
  });
  CHECK(outcomes[0].code == Errc::timeout);
  CHECK_MESSAGE(outcomes[0].mentions("rank 1 (is in recv from rank 0 (tag 5)"), outcomes[0].text);
  CHECK(outcomes[1].code == Errc::timeout);
  CHECK(outcomes[1].text == "told by rank 0: " + outcomes[0].text);
}

TEST_CASE("a rank that closed its connection is lost to those who wait for it") {
  const auto outcomes = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.barrier();
    if (comm.rank() == 1) return;
    comm.set_timeout(20s);
    comm.all_reduce(floats(8));
  });
  CHECK(outcomes[1].ok());
  for (const int rank : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    CHECK(outcome.code == Errc::peer_lost);
    CHECK_MESSAGE(outcome.mentions("lost rank 1"), outcome.text);
    CHECK_MESSAGE(outcome.mentions("all_reduce #2"), outcome.text);
  }
}

TEST_CASE("a rank that left without a word is lost to those that wait for it alone") {
  bool probes = false;
  SUBCASE("recv") {}
  SUBCASE("probe") { probes = true; }
  Event left;
  const auto outcomes = run_ranks(2, [&](const World& world) {
    {
      Communicator comm(world);
      if (world.rank() == 0) {
        REQUIRE(left.wait());
        comm.set_timeout(60s);
        std::vector<int> data(1);
        if (probes) static_cast<void>(comm.probe(1));
        comm.recv(data, 1);
      }
    }
    left.set();
  });
  CHECK(outcomes[0].code == Errc::peer_lost);
  CHECK_MESSAGE(outcomes[0].mentions("rank 0 lost rank 1: "), outcomes[0].text);
}

TEST_CASE("news of a death wakes whoever waits, and name rank, host and cause") {
  auto links = memberships(4);
  Event over;
  const auto outcomes = run_ranks(
      4,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(20s);
        comm.barrier({.ordered_output = true});
        if (comm.rank() == 1) {
          for (int rank : {0, 2, 3}) {
            links[static_cast<std::size_t>(rank)]->lose({1, "node-b", "killed by SIGKILL"});
          }
          if (!over.wait()) throw std::runtime_error("nobody noticed");
          return;
        }
        try {
          comm.all_reduce(floats(8));
        } catch (const Error&) {
          over.set();
          throw;
        }
      },
      links);
  for (const int rank : {0, 2, 3}) {
    const auto r = static_cast<std::size_t>(rank);
    CHECK(outcomes[r].code == Errc::peer_lost);
    CHECK_MESSAGE(outcomes[r].mentions("lost rank 1 on node-b: killed by SIGKILL"),
                  outcomes[r].text);
    REQUIRE(links[r]->reports().size() == 1);
    CHECK(links[r]->reports()[0].first == Errc::peer_lost);
  }
  CHECK(links[0]->drained() >= 1);  // The barrier waited for the output.
}

TEST_CASE(
    "a rank that gave wrong arguments and ended of it: its call is told, and each place once") {
  auto links = memberships(3);
  const auto outcomes = run_ranks(
      3,
      [&](const World& world) {
        std::optional<Communicator> comm(world);
        comm->set_timeout(20s);
        comm->barrier();
        const bool is_wrong = comm->rank() == 2;
        try {
          comm->broadcast(is_wrong ? TensorView(nullptr, 8, DType::f32) : floats(8), 0);
          comm->barrier();
        } catch (const Error&) {
          if (is_wrong) {
            comm.reset();
            for (const std::size_t rank : {0U, 1U}) links[rank]->lose({2, "here", "exited with 1"});
          }
          throw;
        }
      },
      links);
  CHECK(outcomes[2].code == Errc::misuse);
  for (const std::size_t rank : {0U, 1U}) {
    const Outcome& outcome = outcomes[rank];
    CAPTURE(outcome.text);
    CHECK((outcome.code == Errc::mismatch || outcome.code == Errc::peer_lost));
    CHECK(
        outcome.mentions(" were wrong: broadcast #2 on rank 2: 'inout': a null pointer was given "
                         "for 8 elements [failure_test.cpp:"));
    CHECK_FALSE(outcome.mentions("] ["));
    CHECK_FALSE(outcome.mentions("it was told"));
    if (outcome.code != Errc::peer_lost) continue;
    // In its own words, or in those of who met it.
    CHECK(outcome.mentions("lost rank 2 on here: exited with 1 [failure_test.cpp:"));
    CHECK(outcome.mentions("], after the arguments of rank 2 were wrong: "));
    const bool is_own = outcome.text.starts_with("barrier #3: rank " + std::to_string(rank));
    CHECK((is_own || outcome.text.starts_with("told by rank " + std::to_string(1 - rank) + ": ")));
  }
}

TEST_CASE("a rank that left in good order hurts nobody who does not need it") {
  auto links = memberships(3);
  Event left;
  const auto outcomes = run_ranks(
      3,
      [&](const World& world) {
        std::optional<Communicator> comm(world);
        comm->set_timeout(20s);
        // The root is done as soon as its messages are out.
        if (comm->rank() == 0) {
          comm->broadcast(floats(8), 0);
          comm.reset();
          links[1]->lose({0, "here", "exited with 0 before the others", true});
          links[2]->lose({0, "here", "exited with 0 before the others", true});
          left.set();
          return;
        }
        if (!left.wait()) throw std::runtime_error("the root did not leave");
        comm->broadcast(floats(8), 0);
        int x = comm->rank();
        if (comm->rank() == 1) {
          comm->send(x, 2);
        } else {
          comm->recv(x, 1);
        }
      },
      links);
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("the first error sticks, on all ranks") {
  const auto outcomes = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::string first;
    try {
      if (comm.rank() == 0) comm.barrier();
      if (comm.rank() == 1) comm.all_reduce(floats(8));
      throw std::runtime_error("no disagreement found");
    } catch (const Error& error) {
      first = error.what();
    }
    for (int i = 0; i < 2; ++i) {
      try {
        comm.barrier();
        throw std::runtime_error("the error did not stick");
      } catch (const Error& error) {
        if (first != error.what()) throw;
      }
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("a custom reduction that throws is not waited for") {
  const auto outcomes = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const auto failing = Reduction::custom("failing", [](void*, const void*, std::size_t, DType) {
      throw std::runtime_error("out of ideas");
    });
    std::vector<float> in(8), out(8);
    comm.reduce(in, out, 0, failing);  // Rank 0 alone makes a reduction of it.
    comm.barrier();
  });
  CHECK(outcomes[0].text == "out of ideas");
  for (const int rank : {1, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    // With shared memory all ranks reduce, and all throw it themselves.
    if (!testing::ranks_share_memory()) CHECK(outcome.code == Errc::internal);
    CHECK_MESSAGE(outcome.mentions("out of ideas"), outcome.text);
  }
}

TEST_CASE("what is not there says so") {
  for (const auto& outcome : run_ranks(1, [](const World& world) {
         Communicator comm(world);
         const auto unsupported = [](const std::function<void()>& call) {
           try {
             call();
           } catch (const Error& error) {
             if (error.errc() == Errc::unsupported) return;
           }
           throw std::runtime_error("not refused as unsupported");
         };
         float x = 0;
         unsupported([&] { comm.all_reduce(TensorView(&x, 1, DType::f32, {.cuda_device = 0})); });
       })) {
    CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

TEST_CASE("what a rank had sent when it left comes, however late") {
  // More than comes in the moment for which news that overtake data are waited for.
  constexpr std::size_t bytes = std::size_t{96} << 20;
  const auto links = memberships(2);
  const auto outcomes = testing::run_ranks_on(
      {0, 0},
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        std::vector<std::uint8_t> data(bytes, world.rank() == 0 ? 7 : 0);
        if (world.rank() == 0) return comm.send(data, 1);
        static_cast<void>(comm.probe(0));
        links[1]->lose({0, "here", "exited with 0 before the others", true});
        comm.recv(data, 0);
        CHECK(data == std::vector<std::uint8_t>(bytes, 7));
      },
      links);
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("a rank that waits for any other is told when none is left, whichever rank it is") {
  for (const int waiting : {0, 2}) {
    CAPTURE(waiting);
    const auto outcomes = run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(5s);
      int x = 0;
      if (comm.rank() != waiting) return comm.send(x, waiting);
      for (int message = 0; message < 3; ++message) comm.recv(x, any_source);
    });
    const auto& told = outcomes[static_cast<std::size_t>(waiting)];
    CAPTURE(told.text);
    CHECK(told.code == Errc::peer_lost);
  }
}
