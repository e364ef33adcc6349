#include "tests/unit/nccl/double_ranks.hpp"

#include <barrier>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

/// NCCL, and the memory that it knows, after ranks are gone.
namespace dlaunch::testing {
namespace {

using cuda_double::Stream;

std::vector<std::shared_ptr<FakeMembership>> memberships(int size) {
  std::vector<std::shared_ptr<FakeMembership>> made;
  while (static_cast<int>(made.size()) < size) made.push_back(std::make_shared<FakeMembership>());
  return made;
}

int sum_of_ranks(Communicator& comm, int device) {
  std::vector<int> x{comm.rank()};
  comm.all_reduce(on_device(x, device));
  return x[0];
}

/// The calls of NCCL made meanwhile.
struct Asked {
  const nccl_double::Counts before = nccl_double::counts();
  nccl_double::Counts now() const {
    auto counts = nccl_double::counts();
    counts.made -= before.made;
    counts.shrunk -= before.shrunk;
    counts.revoked -= before.revoked;
    counts.split -= before.split;
    return counts;
  }
};

/// Rank 1 of three dies; the others have a call with it under way, or none.
void lose_one(bool under_way) {
  const auto members = memberships(3);
  check_all(run_device_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        CHECK(sum_of_ranks(comm, world.rank()) == 3);
        if (comm.rank() == 1) {
          for (const int rank : {0, 2}) {
            members[static_cast<std::size_t>(rank)]->lose({1, "host-b", "killed by SIGKILL"});
          }
          leave_behind(std::move(comm));
          return;
        }
        if (under_way) {
          CHECK_THROWS_AS(sum_of_ranks(comm, world.rank()), Error);
        } else {
          CHECK_THROWS_AS(comm.barrier(), Error);
        }
        Communicator rest = comm.shrink();
        CHECK(rest.rank() == world.rank() / 2);
        CHECK(sum_of_ranks(rest, world.rank()) == 1);
        CHECK_THROWS_AS(sum_of_ranks(comm, world.rank()), Error);
        auto child = rest.split(0);
        CHECK(sum_of_ranks(*child, world.rank()) == 1);
      },
      members));
}

TEST_CASE("the survivors get theirs of what they had") {
  for (const bool under_way : {false, true}) {
    CAPTURE(under_way);
    const Asked asked;
    lose_one(under_way);
    const auto counts = asked.now();
    if (nccl_revokes()) {
      CHECK(counts.made == 3);
      CHECK(counts.shrunk == 2);
      CHECK(counts.revoked >= 2);  // The last to end may see the others go.
    } else {
      CHECK(counts.made == 5);  // It comes up anew.
    }
  }
}

TEST_CASE("where it cannot be shrunk, the survivors' comes up anew") {
  nccl_double::never_shrink(true);
  const Asked asked;
  lose_one(true);
  nccl_double::never_shrink(false);
  const auto counts = asked.now();
  CHECK(counts.made == 5);
  CHECK(counts.shrunk == 0);
}

TEST_CASE("shrinking where nobody is gone leaves what is under way alone") {
  const Asked asked;
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    Stream* const stream = cuda_double::make_stream(me);
    Options options;
    options.cuda_stream = stream;
    std::vector<int> x{1};
    for (int i = 0; i < 5; ++i) comm.all_reduce(on_device(x, me), {}, options);
    Communicator same = comm.shrink();
    CHECK(x[0] == 32);
    CHECK(sum_of_ranks(same, me) == 1);
    CHECK(sum_of_ranks(comm, me) == 1);
  }));
  const auto counts = asked.now();
  CHECK(counts.made == 2);
  CHECK(counts.split == (nccl_revokes() ? 6 : 2));
}

TEST_CASE("a communicator that was revoked can be shrunk") {
  const Asked asked;
  std::barrier together(2);
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    CHECK(sum_of_ranks(comm, me) == 1);
    together.arrive_and_wait();
    comm.revoke();
    CHECK_THROWS_AS(sum_of_ranks(comm, me), Error);
    Communicator same = comm.shrink();
    CHECK(sum_of_ranks(same, me) == 1);
  }));
  CHECK(asked.now().made == 2);
}

TEST_CASE("ranks of which one has no NCCL yet shrink without it") {
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    Communicator same = comm.shrink();
    CHECK(sum_of_ranks(same, world.rank()) == 1);
  }));
}

std::int64_t registered() { return nccl_double::counts().registered; }

TEST_CASE("buffers are known to the communicator that they are from, as long as both live") {
  const auto before = registered();
  check_all(run_device_ranks(1, [&](const World& world) {
    std::optional<Communicator> comm(world);
    std::optional<DeviceBuffer> early(comm->allocate_device(64, 0));
    const DeviceBuffer elsewhere = comm->allocate_device(64, 1);
    const DeviceBuffer nothing = comm->allocate_device(0, 0);
    CHECK(registered() == before);
    CHECK(sum_of_ranks(*comm, 0) == 0);
    CHECK(registered() == before + 1);
    DeviceBuffer late = comm->allocate_device(64, 0);
    CHECK(registered() == before + 2);
    early.reset();
    CHECK(registered() == before + 1);
    DeviceBuffer moved = std::move(late);
    CHECK(registered() == before + 1);
    auto child = comm->duplicate();
    const DeviceBuffer childs = child.allocate_device(64, 0);
    CHECK(registered() == before + 2);
    comm.reset();
    CHECK(registered() == before + 1);
    // `moved` is freed after its communicator.
  }));
  CHECK(registered() == before);
}

TEST_CASE("buffers outlive an abort") {
  const auto before = registered();
  std::barrier together(2);
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    DeviceBuffer buffer = comm.allocate_device(64, me);
    CHECK(sum_of_ranks(comm, me) == 1);
    together.arrive_and_wait();
    comm.revoke();
    CHECK_THROWS_AS(sum_of_ranks(comm, me), Error);
    buffer = {};
    const DeviceBuffer another = comm.allocate_device(64, me);
  }));
  CHECK(registered() == before);
}

}  // namespace
}  // namespace dlaunch::testing
