// Spawned ranks that name different roots, in calls from which each returns without hearing of the
// others: the spawn fails, and both calls are told.
#include <dlaunch/dlaunch.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

/// nullopt: it returned.
template <class Fn>
std::optional<SpawnError> error_of(int ranks, const Fn& fn) {
  try {
    spawn(ranks, fn);
  } catch (const SpawnError& error) {
    return error;
  }
  return std::nullopt;
}

bool contains(const SpawnError& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

void broadcast_from_itself(int rank, const World& world) {
  Communicator comm(world);
  std::array<float, 1> one{1};
  comm.broadcast(one, rank == 1 ? rank : 0);
}

}  // namespace

TEST_CASE("two ranks that name different roots, and return, are both told") {
  const auto error = error_of(2, broadcast_from_itself);
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->code() == Errc::mismatch);
  CHECK(error->rank() == 0);  // The lower one: nobody knows who is right.
  CHECK(error->exit_code() == 0);
  CHECK(error->signal() == 0);
  CHECK(contains(*error,
                 "the ranks do not agree: rank 0 made broadcast #1 (f32, 1 element, root 0) "
                 "[spawn_rooted_test.cpp:"));
  CHECK(contains(*error, ", but rank 1 made broadcast #1 (f32, 1 element, root 1) "));
}

TEST_CASE("the one of three ranks that differs is named") {
  const auto error = error_of(3, broadcast_from_itself);
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->code() == Errc::mismatch);
  CHECK(error->rank() == 1);
  CHECK(contains(*error,
                 "the ranks do not agree: rank 1 made broadcast #1 (f32, 1 element, root "
                 "1) [spawn_rooted_test.cpp:"));
  CHECK(contains(*error, ", but rank 0 and 1 other made broadcast #1 (f32, 1 element, root 0) "));
}

TEST_CASE("the communicator was one of many, and is no more") {
  const auto error = error_of(2, [](int, const World& world) {
    Communicator comm(world);
    std::array<float, 1> one{1};
    for (int i = 0; i < 40; ++i) {
      auto child = comm.duplicate();
      child.broadcast(one, i == 0 ? child.rank() : 0);
    }
  });
  REQUIRE(error);
  INFO(error->what());
  CHECK(error->code() == Errc::mismatch);
  CHECK(contains(*error, "the ranks do not agree: rank 0 "));
}

TEST_CASE("ranks that agree are not told anything") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    CHECK_FALSE(error_of(ranks, [](int, const World& world) {
      Communicator comm(world);
      std::array<float, 1> one{1};
      std::vector<float> all(static_cast<std::size_t>(comm.size()));
      for (int i = 0; i < 200; ++i) {
        comm.broadcast(one, i % comm.size());
        comm.gather(one, all, i % comm.size());
      }
      auto part = comm.split(comm.rank() % 2);
      for (int i = 0; i < 70; ++i) part->broadcast(one, 0);
    }));
  }
}

TEST_CASE("a call that failed, of which the program has heard, is its own business") {
  CHECK_FALSE(error_of(2, [](int rank, const World& world) {
    Communicator comm(world);
    std::array<float, 1> one{1};
    try {
      comm.reduce(one, one, rank == 1 ? 77 : 0);
      comm.barrier();
    } catch (const Error&) {
    }
  }));
}
