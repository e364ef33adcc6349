// Communicators made from communicators.
#include "runtime/segment/segment.hpp"
#include "tests/support/connections.hpp"
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::require;
using testing::run_ranks;

namespace {

int sum_of_ranks(Communicator& comm) {
  int sum = comm.world_ranks()[static_cast<std::size_t>(comm.rank())];
  comm.all_reduce(sum);
  return sum;
}

}  // namespace

TEST_CASE("split by colour and key") {
  check_all(run_ranks(6, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    // Rank 5 has no colour; the others are odd and even, in falling order.
    const int me = comm.rank();
    auto half = comm.split(me == 5 ? std::nullopt : std::optional(me % 2), -me);
    require(half.has_value() == (me != 5), "who gets a communicator");
    if (half) {
      const std::vector<int> wanted = me % 2 == 0 ? std::vector{4, 2, 0} : std::vector{3, 1};
      require(half->world_ranks() == wanted, "members in the order of their keys");
      require(sum_of_ranks(*half) == (me % 2 == 0 ? 6 : 4), "the halves' own sums");
      require(half->translate(0, comm) == wanted[0], "translation to the world");
      require(!comm.translate(5, *half), "a rank that is not in it");
      auto quarter = half->split(half->rank() == 0 ? 0 : 1);
      require(quarter->size() == (half->rank() == 0 ? 1 : half->size() - 1), "split of a split");
      quarter->barrier();
    }
    require(sum_of_ranks(comm) == 15, "the world goes on");
  }));
}

TEST_CASE("groups by list, made by all or by members alone, in any order") {
  check_all(run_ranks(4, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const std::vector<int> front{2, 0}, back{1, 3}, most{3, 0, 1};
    auto pair = comm.group(front);
    require(pair.has_value() == (comm.rank() % 2 == 0), "who is in the group");
    if (pair) {
      require(pair->rank() == (comm.rank() == 2 ? 0 : 1), "the order of the list");
      require(sum_of_ranks(*pair) == 2, "the pair's sum");
    }
    const auto use = [&](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), comm.rank()) != list.end()
                 ? std::optional(comm.group_of_members(list))
                 : std::nullopt;
    };
    // Rank 3 makes them in the other order.
    auto first = use(comm.rank() == 3 ? most : back);
    auto second = use(comm.rank() == 3 ? back : most);
    if (comm.rank() == 3) std::swap(first, second);
    if (first) require(sum_of_ranks(*first) == 4, "the sum of 1 and 3");
    if (second) require(sum_of_ranks(*second) == 4, "the sum of 0, 1 and 3");
    Communicator twin = comm.duplicate();
    require(sum_of_ranks(twin) == 6, "the twin's sum");
  }));
}

TEST_CASE("groups of ranks that are written where they are made") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    const auto ends = comm.group({2, 0});
    require(ends.has_value() == (comm.rank() != 1), "who is in it");
    if (comm.rank() == 1) return;
    require(ends->world_ranks() == std::vector{2, 0}, "their order");
    Communicator members = comm.group_of_members({0, 2}, {.timeout = 20s});
    require(sum_of_ranks(members) == 2, "their sum");
  }));
}

TEST_CASE("traffic of a duplicate is its own, and its timeout") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    Communicator twin = comm.duplicate();
    twin.set_timeout(20s);
    require(comm.timeout() == 5min && twin.timeout() == 20s, "timeouts");
    int x = 10 + comm.rank(), y = -1, z = -1;
    const int other = 1 - comm.rank();
    comm.send(x, other);
    x = 20 + comm.rank();
    twin.send(x, other);
    twin.recv(y, other);
    comm.recv(z, other);
    require(y == 20 + other && z == 10 + other, "messages went astray");
  }));
}

TEST_CASE("two communicators made from one world") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator one(world, "one"), two(world, "two");
    require(sum_of_ranks(two) == 3 && sum_of_ranks(one) == 3, "sums");
  }));
}

TEST_CASE("each of several communicators made from one world has rings where the first has them") {
  const std::size_t before = testing::connection_ends();
  check_all(run_ranks(3, [&](const World& world) {
    std::vector<Communicator> all;
    const auto pass_on = [&](Communicator& comm) {
      const int next = (comm.rank() + 1) % 3, last = (comm.rank() + 2) % 3;
      int value = -1;
      Work sent = comm.isend(next, next);
      comm.recv(value, last);
      sent.wait();
      require(value == comm.rank(), "a message went astray");
    };
    const auto add = [&] {
      all.emplace_back(world, "number " + std::to_string(all.size())).set_timeout(20s);
    };
    while (all.size() < ring_sets) add();
    for (int round = 0; round < 2; ++round) {
      for (Communicator& comm : all) pass_on(comm);
    }
    for (Communicator& comm : all) comm.barrier();
    const std::size_t made = testing::connection_ends() - before;
    all[0].barrier();  // Nobody makes more before all have counted.
    require(testing::ranks_share_memory() == (made == 0), "messages go by the other way");
    add();
    pass_on(all.back());
    for (Communicator& comm : all) comm.barrier();
    require(testing::connection_ends() > before, "there is no set of rings left");
    all[0].barrier();  // Nobody ends before all have counted.
  }));
}

TEST_CASE("wrong groups are errors, not hangs") {
  const auto twice = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    static_cast<void>(comm.group(std::vector{0, 0}));
  });
  for (const auto& outcome : twice) {
    CHECK(outcome.code == Errc::misuse);
    CHECK_MESSAGE(outcome.mentions("rank 0 is listed twice"), outcome.text);
  }
  const auto different = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    static_cast<void>(comm.group(comm.rank() == 1 ? std::vector{0, 1} : std::vector{1, 0}));
  });
  for (const auto& outcome : different) CHECK(outcome.code == Errc::mismatch);
  const auto stranger = run_ranks(1, [](const World& world) {
    Communicator comm(world);
    static_cast<void>(comm.group_of_members(std::vector{1}));
  });
  CHECK(stranger[0].code == Errc::misuse);
}

TEST_CASE("a group's messages name it and its ranks") {
  const auto outcomes = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    auto pair = comm.split(comm.rank() == 0 ? std::nullopt : std::optional(0));
    if (!pair) return;
    pair->set_timeout(20s);
    if (pair->rank() == 1) return;
    int x = 0;
    pair->recv(x, 1, {.timeout = 100ms});
  });
  CHECK(outcomes[0].ok());
  CHECK_MESSAGE(outcomes[1].mentions("'world/split1.0'"), outcomes[1].text);
  CHECK_MESSAGE(outcomes[1].mentions("rank 1 (rank 2 of the world)"), outcomes[1].text);
}

TEST_CASE("members that give different lists are shown both") {
  const auto outcomes = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    if (comm.rank() == 2) return;
    const bool first = comm.rank() == 0;
    Communicator made = comm.group_of_members(first ? std::vector{0, 1} : std::vector{1, 0, 2});
    int rank = comm.rank();
    made.recv(rank, 1, {.timeout = first ? 500ms : 20s});
  });
  CHECK(outcomes[2].ok());
  CHECK_MESSAGE(outcomes[0].mentions("'world/members1(0,1)'"), outcomes[0].text);
  CHECK_MESSAGE(outcomes[0].mentions("'world/members1(1,0,2)'"), outcomes[0].text);
}
