#include "runtime/base/pools.hpp"

#include <set>
#include <thread>

#include <doctest/doctest.h>

using dlaunch::BufferPool;
using dlaunch::PooledMemory;

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

TEST_CASE("memory for objects of one size is given to the same thread again") {
  using Memory = PooledMemory<96, 16>;
  constexpr int window = 64;
  std::set<void*> taken;
  for (int i = 0; i < window; ++i) taken.insert(Memory::take());
  CHECK(taken.size() == window);
  for (void* each : taken) Memory::give_back(each);
  std::set<void*> again;
  for (int i = 0; i < window; ++i) again.insert(Memory::take());
  CHECK(again == taken);
  // Another thread may give it back, and keeps it for itself.
  std::thread([&] {
    for (void* each : again) Memory::give_back(each);
    void* const own = Memory::take();
    CHECK(again.contains(own));
    Memory::give_back(own);
  }).join();
}
