#include "runtime/base/pools.hpp"

#include <doctest/doctest.h>

using dlaunch::BufferPool;

TEST_CASE("a room that was given back is taken again, if it is large enough") {
  BufferPool buffer_pool;
  const std::byte* first = nullptr;
  {
    const auto buffer = buffer_pool.take(100'000);
    first = buffer.get();
    CHECK(buffer.size() == 100'000);
  }
  {
    const auto same = buffer_pool.take(50'000);
    CHECK(same.get() == first);
    CHECK(same.bytes().size() == 50'000);
    const auto other = buffer_pool.take(50'000);
    CHECK(other.get() != first);
  }
  const auto larger = buffer_pool.take(200'000);
  CHECK(larger.size() == 200'000);
}

TEST_CASE("no more is kept than may be") {
  BufferPool buffer_pool(250'000);
  {
    const auto a = buffer_pool.take(100'000), b = buffer_pool.take(100'000),
               c = buffer_pool.take(100'000);
    const auto huge = buffer_pool.take(1'000'000);
  }
  // Two of three, and the huge one not at all; small ones never.
  const auto a = buffer_pool.take(100'000), b = buffer_pool.take(100'000);
  CHECK(a.get() != b.get());
  const auto small = buffer_pool.take(16), empty = buffer_pool.take(0);
  CHECK(small.size() == 16);
  CHECK(empty.bytes().empty());
}
