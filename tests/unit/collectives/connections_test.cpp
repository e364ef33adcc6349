// How many connections the ranks of a world make for what they do: what each call may make is said
// in docs/collectives.md.
#include "tests/support/connections.hpp"

#include "tests/support/ranks.hpp"
#include "tests/support/skipped.hpp"

#include <dlaunch/dlaunch.hpp>

#include <barrier>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Calls = std::vector<std::pair<std::string, std::function<void(Communicator&)>>>;

void all_reduce(Communicator& comm, std::size_t count) {
  std::vector<int> data(count, 1);
  comm.all_reduce(data);
  if (data != std::vector<int>(count, comm.size())) throw std::runtime_error("a wrong sum");
}

void broadcast(Communicator& comm, std::size_t count) {
  std::vector<int> data(count, comm.rank());
  comm.broadcast(data, 0);
  if (data != std::vector<int>(count, 0)) throw std::runtime_error("another rank's data");
}

/// How many connections there are when the world is there, and after each of the calls.
std::vector<std::size_t> count_connections(int ranks, const Calls& calls) {
  const std::size_t before = testing::connection_ends();
  std::vector<std::size_t> counts;
  std::barrier all(ranks);
  const auto outcomes = testing::run_ranks(ranks, [&](const World& world) {
    // However a rank ends, nobody waits for it at the barrier.
    struct Leaving {
      std::barrier<>& all;
      ~Leaving() { all.arrive_and_drop(); }
    } const leaving{all};
    Communicator comm(world);
    comm.set_timeout(60s);
    for (std::size_t i = 0; i <= calls.size(); ++i) {
      if (i > 0) calls[i - 1].second(comm);
      all.arrive_and_wait();
      // Both ends are in this process.
      if (comm.rank() == 0) counts.push_back((testing::connection_ends() - before) / 2);
      all.arrive_and_wait();
    }
  });
  for (const auto& outcome : outcomes) REQUIRE_MESSAGE(outcome.ok(), outcome.text);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    MESSAGE(ranks << " ranks, " << (i == 0 ? "ready" : calls[i - 1].first) << ": " << counts[i]
                  << " connections");
  }
  return counts;
}

/// The process may have so many descriptors; asks for them.
bool has_descriptors(rlim_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, wanted));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= wanted;
}

}  // namespace

TEST_CASE("64 ranks make no connection before they talk, and then few each") {
  constexpr std::size_t ranks = 64;
  if (!has_descriptors(4096)) {
    return testing::skipped("4096 descriptors are needed");
  }
  const Calls calls = {
      {"a barrier", [](Communicator& comm) { comm.barrier(); }},
      {"all_reduce of 4 bytes", [](Communicator& comm) { all_reduce(comm, 1); }},
      {"all_reduce of 16 KiB", [](Communicator& comm) { all_reduce(comm, 4096); }},
      {"broadcast of 4 bytes", [](Communicator& comm) { broadcast(comm, 1); }},
      {"broadcast of 1 MiB", [](Communicator& comm) { broadcast(comm, 1u << 18); }},
  };
  const auto counts = count_connections(static_cast<int>(ranks), calls);
  CHECK(counts.front() == 0);
  const bool shared = testing::ranks_share_memory();
  for (const std::size_t count : counts) {
    CHECK(count <= (shared ? 0 : 3 * ranks * std::bit_width(ranks - 1)));
  }
  if (!shared) CHECK(counts.back() > ranks);
}

TEST_CASE("72 ranks: no call but all_to_all connects every pair") {
  constexpr std::size_t ranks = 72;
  if (testing::ranks_share_memory()) return;  // They have no connections.
  if (!has_descriptors(8192)) return testing::skipped("8192 descriptors are needed");
  using Floats = std::vector<float>;
  const auto require = [](bool holds) {
    if (!holds) throw std::runtime_error("a wrong result");
  };
  constexpr float sum = 72;
  constexpr std::size_t large = 50'000, part = 700;
  const auto all_reduce_floats = [=](const Reduction& how) {
    return [=](Communicator& comm) {
      Floats x(large, 1);
      comm.all_reduce(x, how);
      require(x == Floats(large, sum));
    };
  };
  const auto reduce_scatter = [=](std::size_t each) {
    return [=](Communicator& comm) {
      Floats in(each * ranks, 1), out(each);
      comm.reduce_scatter(in, out);
      require(out == Floats(each, sum));
    };
  };
  const Calls calls = {
      {"a barrier", [](Communicator& comm) { comm.barrier(); }},
      {"all_reduce", all_reduce_floats(ReduceOp::sum)},
      {"all_reduce in any order", all_reduce_floats(Reduction(ReduceOp::sum).any_order())},
      {"all_reduce by max", [](Communicator& comm) { all_reduce(comm, 1u << 16); }},
      {"reduce",
       [=](Communicator& comm) {
         Floats in(large, 1), out(large);
         comm.reduce(in, out, 0);
         require(comm.rank() != 0 || out == Floats(large, sum));
       }},
      {"reduce_scatter", reduce_scatter(part)},
      {"a small reduce_scatter", reduce_scatter(1)},
      {"broadcast", [](Communicator& comm) { broadcast(comm, 1u << 18); }},
      {"all_gather",
       [=](Communicator& comm) {
         Floats in(part, 1), out(part * ranks);
         comm.all_gather(in, out);
         require(out == Floats(part * ranks, 1));
       }},
      {"gather",
       [=](Communicator& comm) {
         Floats in(5000, 1), out(comm.rank() == 0 ? 5000 * ranks : 0);
         comm.gather(in, out, 0);
       }},
      {"scatter",
       [=](Communicator& comm) {
         Floats in(comm.rank() == 0 ? 5000 * ranks : 0, 1), out(5000);
         comm.scatter(in, out, 0);
         require(out == Floats(5000, 1));
       }},
  };
  const auto counts = count_connections(static_cast<int>(ranks), calls);
  for (const std::size_t count : counts) CHECK(count <= 3 * ranks * std::bit_width(ranks - 1));
}

TEST_CASE("what all ranks fold makes one connection for each pair of ranks and direction") {
  constexpr std::size_t ranks = 9;
  const auto large = [](Communicator& comm) { all_reduce(comm, 1u << 18); };
  const auto counts = count_connections(
      static_cast<int>(ranks), {{"all_reduce of 1 MiB", large}, {"the same again", large}});
  CHECK(counts[1] <= (testing::ranks_share_memory() ? 0 : ranks * (ranks - 1)));
  CHECK(counts[2] == counts[1]);
}
