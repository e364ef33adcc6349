// What is large, or of which there are many, does not cost the others their time or their memory.
#include "runtime/store/core/key_values.hpp"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::store;
using namespace std::chrono_literals;

namespace {

const Clock::time_point start{};
constexpr auto never = Clock::time_point::max();
constexpr Caller a{1, 1}, b{2, 1}, c{3, 1};

}  // namespace

TEST_CASE("the loss of very many contributors looks at each barrier once") {
  KeyValues values;
  Effects out;
  const int first[] = {0};
  constexpr std::uint64_t barriers = 4000;
  for (std::uint64_t i = 0; i < barriers; ++i) {
    values.barrier({2, i}, "pair " + std::to_string(i), 0, 2, first, never, out);
  }
  values.barrier(c, "all", 0, 1 << 20, first, never, out);
  REQUIRE(out.empty());
  values.lose({0, 1 << 20}, 1 << 20, "on b is lost", out);
  REQUIRE(out.size() == 1);
  CHECK(std::get<Refused>(out.front().answer).reason == "rank 1 on b is lost");
  out.clear();
  // One after the other, and again: they become one range.
  for (int lost = 0; lost < 200'000; ++lost) {
    values.lose({lost % 100'000}, 100'000, "on b is lost", out);
  }
  values.barrier(c, "later", 0, 100'000, first, never, out);
  REQUIRE(out.size() == 1);
  CHECK(std::get<Refused>(out.front().answer).reason == "rank 1 on b is lost");
}

TEST_CASE("of those that are lost each keeps the reason that was given first") {
  KeyValues values;
  Effects out;
  values.lose({4, 2}, 10, "is the first", out);
  values.lose({2, 6}, 10, "is the second", out);
  values.lose({0, 10}, 10, "is the third", out);
  std::string reasons;
  for (int absent = 0; absent < 10; ++absent) {
    std::vector<int> others;
    for (int i = 0; i < 10; ++i) {
      if (i != absent) others.push_back(i);
    }
    out.clear();
    values.barrier(a, "b " + std::to_string(absent), 0, 10, others, never, out);
    REQUIRE(out.size() == 1);
    reasons += std::get<Refused>(out.front().answer).reason + "; ";
  }
  CHECK(reasons ==
        "rank 0 is the third; rank 1 is the third; rank 2 is the second; rank 3 is the second; "
        "rank 4 is the first; rank 5 is the first; rank 6 is the second; rank 7 is the second; "
        "rank 8 is the third; rank 9 is the third; ");
}

TEST_CASE("a large value that many wait for is one block, counted until nobody holds it") {
  Limits limits;
  limits.memory = std::make_shared<MemoryBudget>();
  KeyValues values(limits);
  Effects out;
  constexpr std::size_t size = 1u << 20;
  for (std::uint64_t client = 2; client < 66; ++client) {
    values.wait_get({client, 1}, "k", never, out);
    values.watch({client, 2}, "k", out);
  }
  values.settle();
  const std::size_t before = limits.memory->used();
  values.set(a, "k", Bytes(size), out);
  values.settle();
  REQUIRE(out.size() == 129);
  const auto& watched = std::get<Changed>(out[1].answer);
  const auto& found = std::get<Found>(out[65].answer);
  REQUIRE(watched.block);
  REQUIRE(found.block);
  CHECK(watched.block->size() == size);
  CHECK(found.block->size() == size);
  CHECK(found.block.use_count() == 64);
  CHECK(limits.memory->used() >
        before + 3 * size - 100'000);  // The value, and a block of each kind.
  CHECK(limits.memory->used() < before + 3 * size + 100'000);
  out.clear();
  values.settle();
  CHECK(limits.memory->used() < before + size + 100'000);
}

TEST_CASE("a gathered block is counted once, and as long as somebody is still to get it") {
  Limits limits;
  limits.memory = std::make_shared<MemoryBudget>();
  KeyValues values(limits);
  Effects out;
  constexpr std::size_t size = 1u << 20;
  const Bytes large(size);
  const int only[] = {0};
  const auto gather = [&](std::uint64_t round, BytesView blob) {
    values.all_gather(a, "g", round, 1, only, std::array{blob}, never, out);
    values.settle();
  };
  gather(0, large);
  CHECK(limits.memory->used() > size);
  CHECK(limits.memory->used() < size + 10'000);
  const Effects slow = std::exchange(out, {});
  gather(1, {});  // The next round: the store itself holds the block no more.
  gather(2, {});
  CHECK(limits.memory->used() > size);
  CHECK(limits.memory->used() < size + 10'000);
}

TEST_CASE("an owner of very many leases costs no more than others, and its goodbye goes in parts") {
  Limits limits;
  limits.leases_per_owner = 1u << 20;
  limits.memory = std::make_shared<MemoryBudget>();
  KeyValues values(limits);
  Effects out;
  constexpr std::size_t leases = 150'000;
  for (std::size_t i = 0; i < leases; ++i) {
    const auto length = std::chrono::milliseconds(1000 + i % 1000);
    values.set_leased(a, "k" + std::to_string(i), {}, 7, length, start, out);
    values.renew(7, start);
    out.clear();
  }
  values.end_leases(7, out);
  CHECK(values.size() > leases - 2000);
  const std::string last = "k" + std::to_string(leases - 1);
  values.set(b, last, {}, out);  // It is another's from now on.
  std::size_t ticks = 0;
  for (std::size_t before = values.size(); before > 1; before = values.size(), ++ticks) {
    REQUIRE(values.next_deadline().value_or(never) <= start);
    out.clear();
    values.tick(start, out);
    REQUIRE(values.size() < before);
    REQUIRE(before - values.size() < 2000);
  }
  CHECK(ticks > 100);
  CHECK_FALSE(values.next_deadline());
  values.erase(b, last, out);
  CHECK(std::get<Number>(out.back().answer).value == 1);
  values.settle();
  CHECK(limits.memory->used() == 0);
}

TEST_CASE("looking for those who are missing counts as work, and does not pass those who are not") {
  KeyValues values;
  constexpr int world = 400'000;  // So many that one search is what a tick may do.
  std::vector<int> others;
  for (int i = 1; i < world - 1; ++i) others.push_back(i);
  Effects out;
  constexpr std::uint64_t barriers = 8;
  for (std::uint64_t i = 0; i < barriers; ++i) {
    values.barrier({1, i}, "b " + std::to_string(i), 0, world, others, start, out);
  }
  for (std::uint64_t i = 0; i < barriers; ++i) {
    out.clear();
    values.tick(start, out);
    REQUIRE(out.size() == 1);
    CHECK(std::get<TimedOut>(out[0].answer).contributors == std::vector{0, world - 1});
  }
  // With the first there, those behind it are found at once.
  const int first[] = {0};
  for (std::uint64_t i = 0; i < barriers; ++i) {
    values.barrier({1, i}, "b " + std::to_string(i), 0, world, first, start, out);
  }
  out.clear();
  values.tick(start, out);
  CHECK(out.size() == barriers);
}
