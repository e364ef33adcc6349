// A rank of a large world takes room for those it has to do with, and descriptors as well.
#include "tests/support/ranks.hpp"
#include "tests/support/skipped.hpp"

#include <dlaunch/dlaunch.hpp>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/resource.h>

namespace {

std::atomic<std::size_t> allocated{0};  ///< And not freed, in bytes.

}  // namespace

// The whole program takes its memory by these. Not inlined: a compiler that sees through one of
// them alone takes them for no pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* place = std::malloc(bytes == 0 ? 1 : bytes);
  if (place == nullptr) throw std::bad_alloc();
  allocated += ::malloc_usable_size(place);
  return place;
}
[[gnu::noinline]] void operator delete(void* place) noexcept {
  if (place != nullptr) allocated -= ::malloc_usable_size(place);
  std::free(place);
}
[[gnu::noinline]] void operator delete(void* place, std::size_t) noexcept {
  operator delete(place);
}

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

/// Rank 7 of it; the others are not there.
World world_of(int size) {
  WorldInfo info;
  info.rank = 7;
  info.size = size;
  info.local_rank = 0;
  info.local_size = 1;
  info.node_rank = 7;
  info.node_count = size;
  info.job = "large";
  return {info, std::make_shared<LocalStore>(), nullptr};
}

/// The bytes of a communicator that has waited for a rank, and for any.
std::size_t bytes_of_communicator(int size) {
  const World world = world_of(size);
  const std::size_t before = allocated;
  Communicator comm(world);
  std::vector<int> never(1);
  for (const int from : {size - 1, any_source}) {
    try {
      comm.recv(never, from, {.timeout = 20ms});
      FAIL("nobody sends it");
    } catch (const Error& error) {
      CHECK(error.errc() == Errc::timeout);
    }
  }
  return allocated - before;
}

class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit changed{most, before_.rlim_max};
    is_set_ = ::setrlimit(RLIMIT_NOFILE, &changed) == 0;
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  bool is_set() const { return is_set_; }

 private:
  rlimit before_{};
  bool is_set_ = false;
};

}  // namespace

TEST_CASE("a communicator's memory grows with those it talks to, and not with the world") {
  const auto small = bytes_of_communicator(100), large = bytes_of_communicator(100'000);
  MESSAGE("100 ranks: " << small << " bytes; 100,000 ranks: " << large << " bytes");
  // The list of its ranks, which Communicator::world_ranks shows; and a few that are asked what
  // they do when a call has taken too long.
  CHECK(large < small + 100'000 * sizeof(int) + 100'000);
}

TEST_CASE("600 ranks wait where a process may have 1024 descriptors") {
  constexpr int size = 600;
  // All are in this process, and have theirs before the limit comes down.
  const DescriptorLimit many(8192);
  if (!many.is_set()) {
    return testing::skipped("8192 descriptors are needed");
  }
  std::unique_ptr<DescriptorLimit> few;
  std::barrier all(size, [&]() noexcept {
    if (!few) few = std::make_unique<DescriptorLimit>(1024);
  });
  const auto outcomes = testing::run_ranks_on(std::vector<int>(size, 0), [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int next = (comm.rank() + 1) % size, previous = (comm.rank() + size - 1) % size;
    const auto hand_round = [&] {
      std::vector<int> token(1);
      if (comm.rank() == 0) comm.send(token, next);
      comm.recv(token, previous);
      if (comm.rank() != 0) comm.send(token, next);
    };
    try {
      hand_round();
    } catch (...) {
      all.arrive_and_drop();
      throw;
    }
    all.arrive_and_wait();
    hand_round();
  });
  few.reset();
  for (const auto& outcome : outcomes) REQUIRE_MESSAGE(outcome.ok(), outcome.text);
}
