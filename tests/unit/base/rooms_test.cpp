#include "runtime/base/rooms.hpp"

#include <doctest/doctest.h>

using dlaunch::Rooms;

TEST_CASE("a room that was given back is taken again, if it is large enough") {
  Rooms rooms;
  const std::byte* first = nullptr;
  {
    const auto room = rooms.take(100'000);
    first = room.get();
    CHECK(room.size() == 100'000);
  }
  {
    const auto same = rooms.take(50'000);
    CHECK(same.get() == first);
    CHECK(same.bytes().size() == 50'000);
    const auto other = rooms.take(50'000);
    CHECK(other.get() != first);
  }
  const auto larger = rooms.take(200'000);
  CHECK(larger.size() == 200'000);
}

TEST_CASE("no more is kept than may be") {
  Rooms rooms(250'000);
  {
    const auto a = rooms.take(100'000), b = rooms.take(100'000), c = rooms.take(100'000);
    const auto huge = rooms.take(1'000'000);
  }
  // Two of three, and the huge one not at all; small ones never.
  const auto a = rooms.take(100'000), b = rooms.take(100'000);
  CHECK(a.get() != b.get());
  const auto small = rooms.take(16), empty = rooms.take(0);
  CHECK(small.size() == 16);
  CHECK(empty.bytes().empty());
}
