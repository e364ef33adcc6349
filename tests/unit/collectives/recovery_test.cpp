// Going on without the dead: abort, revoke, agree, shrink.
#include "tests/support/ranks.hpp"

#include <dlaunch/communicator.hpp>

#include <atomic>
#include <numeric>
#include <stdexcept>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::testing;
using namespace std::chrono_literals;

namespace {

std::vector<std::shared_ptr<FakeMembership>> memberships(int size) {
  std::vector<std::shared_ptr<FakeMembership>> made;
  for (int rank = 0; rank < size; ++rank) made.push_back(std::make_shared<FakeMembership>());
  return made;
}

using Memberships = std::vector<std::shared_ptr<FakeMembership>>;

void tell_death(const Memberships& links, int dead) {
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    if (static_cast<int>(rank) != dead) links[rank]->lose({dead, "node-b", "killed by SIGKILL"});
  }
}

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

template <class Call>
Errc errc_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.errc();
  }
  throw std::runtime_error("nothing was thrown");
}

int sum_of(Communicator& comm, int mine) {
  comm.all_reduce(mine);
  return mine;
}

void check_all_ok(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

}  // namespace

TEST_CASE("revoke ends the calls of all ranks, those that wait and later ones") {
  Event over;  // The barrier, for all whom the revocation is to meet behind it.
  std::atomic<int> behind{0};
  const auto outcomes = run_ranks(4, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    comm.barrier();
    if (comm.rank() == 2) {
      check(over.wait(), "the barrier did not end");
      comm.revoke();
      comm.revoke();
      check(errc_of([&] { comm.barrier(); }) == Errc::revoked, "goes on at the revoking rank");
      return;
    }
    if (++behind == 3) over.set();
    int x = 0;
    try {
      if (comm.rank() == 0) {
        comm.recv(x, 2);
      } else {
        comm.all_reduce(x);
      }
    } catch (const Error& error) {
      const std::string text = error.what();
      check(error.errc() == Errc::revoked, error.what());
      check(text.find("was revoked by rank 2") != std::string::npos, error.what());
      check(errc_of([&] { comm.barrier(); }) == Errc::revoked, "a later call goes on");
      return;
    }
    throw std::runtime_error("the call ended well");
  });
  check_all_ok(outcomes);
}

TEST_CASE("agree: the bitwise and of all, as often as one likes, also on a revoked communicator") {
  for (const int size : {1, 2, 5}) {
    CAPTURE(size);
    check_all_ok(run_ranks(size, [&](const World& world) {
      Communicator comm(world);
      for (std::uint32_t round = 0; round < 20; ++round) {
        const std::uint32_t all = 0xffff'ff00U | round;
        const std::uint32_t mine = all & ~(0x100U << comm.rank());
        const std::uint32_t expected = all & ~(((1U << size) - 1) << 8);
        check(comm.agree(mine, {.timeout = 20s}) == expected, "another value");
        if (round == 10 && comm.rank() == size - 1) comm.revoke();
      }
    }));
  }
}

TEST_CASE("after a death mid-call the survivors shrink and go on, with the right sum") {
  for (const int size : {2, 4, 7}) {
    for (const int dead : {0, size / 2, size - 1}) {
      CAPTURE(size);
      CAPTURE(dead);
      const auto links = memberships(size);
      check_all_ok(run_ranks(
          size,
          [&](const World& world) {
            Communicator comm(world);
            comm.set_timeout(20s);
            // Long enough that something is half on its way when the call breaks off.
            std::vector<float> data(1 << 20, 1.0F);
            if (comm.rank() == dead) {
              comm.all_reduce(data);
              return tell_death(links, dead);
            }
            const auto broken = errc_of([&] {
              for (;;) comm.all_reduce(data);
            });
            // A quicker rank may have revoked it already.
            check(broken == Errc::peer_lost || broken == Errc::revoked, "another error");
            comm.revoke();
            Communicator rest = comm.shrink();
            check(rest.size() == size - 1, "another size");
            check(rest.rank() == comm.rank() - (comm.rank() > dead ? 1 : 0), "another rank");
            check(rest.name() == "world/shrink1", "another name");
            check(sum_of(rest, comm.rank()) == size * (size - 1) / 2 - dead, "a wrong sum");
            std::vector<float> ones(1 << 20, 1.0F);
            rest.all_reduce(ones);
            check(ones.front() == static_cast<float>(size - 1), "a wrong sum of floats");
            rest.barrier();
            if (rest.size() < 2) return;
            int x = rest.rank();
            const int next = (rest.rank() + 1) % rest.size();
            const int previous = (rest.rank() + rest.size() - 1) % rest.size();
            int got = -1;
            const std::vector<Transfer> both = {Transfer::send(x, next),
                                                Transfer::recv(got, previous)};
            rest.batch(both);
            check(got == previous, "a wrong message");
            auto half = rest.split(rest.rank() % 2);
            check(sum_of(*half, 1) == half->size(), "a wrong sum in a part");
          },
          links));
    }
  }
}

TEST_CASE("shrink again and again, until one rank is left") {
  constexpr int size = 5;
  const auto links = memberships(size);
  check_all_ok(run_ranks(
      size,
      [&](const World& world) {
        std::vector<Communicator> comms;
        comms.emplace_back(world);
        for (int dead = 0; dead < size; ++dead) {
          Communicator& comm = comms.back();
          comm.set_timeout(20s);
          check(sum_of(comm, world.rank()) == (size * (size - 1) - dead * (dead - 1)) / 2,
                "a wrong sum");
          static_cast<void>(comm.agree(1));  // All have their sum.
          if (world.rank() == dead) return tell_death(links, dead);
          Communicator rest = comm.shrink();
          check(rest.size() == size - 1 - dead, "another size");
          comms.push_back(std::move(rest));
        }
      },
      links));
}

TEST_CASE("who dies on the way to an agreement does not hold it up, wherever it stands") {
  for (const bool has_come : {false, true}) {
    for (const int dead : {0, 1, 3}) {
      CAPTURE(has_come);
      CAPTURE(dead);
      const auto links = memberships(4);
      check_all_ok(run_ranks(
          4,
          [&](const World& world) {
            Communicator comm(world);
            static_cast<void>(comm.agree(1));
            if (comm.rank() == dead) {
              if (has_come) {
                comm.abort();  // It has left its flags when it hears of that.
                check(errc_of([&] { static_cast<void>(comm.agree(7)); }) == Errc::aborted,
                      "another error");
              }
              return tell_death(links, dead);
            }
            const std::uint32_t agreed = comm.agree(comm.rank() == 2 ? 6 : 7);
            check(agreed == 6, "another value");
            Communicator rest = comm.shrink();
            check(rest.size() == 3, "another size");
            rest.barrier();
          },
          links));
    }
  }
}

TEST_CASE("a rank that does not come is named, on all ranks alike") {
  Event over;
  std::atomic<int> ended{0};
  const auto outcomes = run_ranks(4, [&](const World& world) {
    Communicator comm(world);
    comm.barrier();
    if (comm.rank() == 1) {
      check(over.wait(), "the others did not give up");
      return;
    }
    try {
      Communicator rest = comm.shrink({.timeout = 200ms});
    } catch (const Error&) {
      if (++ended == 3) over.set();
      throw;
    }
  });
  CHECK(outcomes[1].ok());
  for (const std::size_t rank : {0U, 2U, 3U}) {
    CHECK(outcomes[rank].code == Errc::timeout);
    CHECK(outcomes[rank].text == outcomes[0].text);
    CHECK_MESSAGE(outcomes[rank].mentions("absent, and not known to be lost: rank 1"),
                  outcomes[rank].text);
  }
}

TEST_CASE("agree here and shrink there are told apart") {
  std::atomic<int> agree_line{0}, shrink_line{0};
  for (const auto& outcome : run_ranks(3, [&](const World& world) {
         Communicator comm(world);
         if (comm.rank() == 1) {
           shrink_line = __LINE__ + 1;
           static_cast<void>(comm.shrink({.timeout = 20s}));
         } else {
           agree_line = __LINE__ + 1;
           static_cast<void>(comm.agree(1, {.timeout = 20s}));
         }
       })) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(
        outcome.mentions("rank 0 is in agree #1 [recovery_test.cpp:" + std::to_string(agree_line) +
                         "], but rank 1 is in shrink #1 [recovery_test.cpp:" +
                         std::to_string(shrink_line) + "]"),
        outcome.text);
  }
}

TEST_CASE("who was taken for lost hears that the others went on without it") {
  auto links = memberships(3);
  Event shrunk;
  check_all_ok(run_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        static_cast<void>(comm.agree(1));
        if (comm.rank() == 2) {
          links[0]->lose({2, "node-b", "silent for 5 s"});
          links[1]->lose({2, "node-b", "silent for 5 s"});
          check(shrunk.wait(), "the others did not shrink");
          check(errc_of([&] { static_cast<void>(comm.shrink()); }) == Errc::peer_lost,
                "it came along");
          return;
        }
        Communicator rest = comm.shrink({.timeout = 20s});
        check(rest.size() == 2, "another size");
        rest.barrier();
        shrunk.set();
      },
      links));
}

TEST_CASE("abort ends an agreement that waits") {
  Event over;
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.barrier();
    if (comm.rank() == 1) {
      check(over.wait(), "the other one waits on");
      return;
    }
    std::jthread other([&] { comm.abort(); });
    const auto errc = errc_of([&] { static_cast<void>(comm.agree(1, {.timeout = 20s})); });
    over.set();
    check(errc == Errc::aborted, "another error");
  });
  check_all_ok(outcomes);
}
