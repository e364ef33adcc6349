// Ranks of several nodes, whose ranks share memory: the same bits wherever the ranks are, and
// disagreements between calls that go by node and calls that do not.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scalar_fold.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Outcome;
using testing::require;

namespace {

using Nodes = std::vector<int>;

const std::vector<Nodes> layouts = {
    {0, 0, 1, 1},              // 2 x 2
    {0, 0, 1, 1, 2, 2},        // 3 x 2
    {0, 0, 1},                 // 2 + 1
    {0, 0, 0, 0, 1, 1, 1, 2},  // 4 + 3 + 1
    {0, 1, 1, 2, 2, 2},        // the smallest first
    {0, 1, 0, 1},              // not in order
    {0, 1, 1, 0, 2},
};

std::string name_of(const Nodes& nodes) {
  std::string text = "nodes";
  for (const int node : nodes) text += " " + std::to_string(node);
  return text;
}

std::vector<Outcome> run_on(const Nodes& nodes, const testing::Body& body) {
  std::vector<std::shared_ptr<testing::FakeMembership>> memberships;
  testing::share_memory(memberships, nodes);
  return testing::run_ranks_on(nodes, body, memberships);
}

/// Numbers that round when they are added.
template <class T>
T value(int rank, std::size_t i) {
  const float number = 1.0f / static_cast<float>(i % 977 + 1 + 7 * static_cast<std::size_t>(rank));
  if constexpr (testing::is_whole<T>)
    return static_cast<T>(i * 1000003 + static_cast<std::size_t>(rank));
  return static_cast<T>(number);
}

template <class T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value<T>(rank, i);
  return all;
}

/// By the definition; exact, but where any order is allowed.
template <class T>
class Reference {
 public:
  Reference(const Reduction& reduction, int ranks, std::size_t count)
      : is_exact_(!reduction.is_any_order() || testing::is_whole<T>) {
    std::vector<T> column(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t rank = 0; rank < column.size(); ++rank) {
        column[rank] = value<T>(static_cast<int>(rank), i);
      }
      all_.push_back(testing::scalar_fold<T>(reduction, column));
    }
  }
  bool is(const T* got, std::size_t first, std::size_t count) const {
    if (is_exact_) return count == 0 || std::memcmp(got, &all_[first], count * sizeof(T)) == 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto wanted = static_cast<double>(static_cast<float>(all_[first + i]));
      const auto here = static_cast<double>(static_cast<float>(got[i]));
      if (std::abs(here - wanted) > (sizeof(T) == 2 ? 0.01 : 1e-5) * std::abs(wanted)) return false;
    }
    return true;
  }

 private:
  bool is_exact_;
  std::vector<T> all_;
};

template <class T>
void check_reductions(const Nodes& nodes, const Reduction& reduction, std::size_t count) {
  const int size = static_cast<int>(nodes.size());
  const std::size_t parts = count - count % nodes.size(), each = parts / nodes.size();
  const Reference<T> wanted(reduction, size, count);
  std::vector<std::vector<T>> results(nodes.size());
  const auto outcomes = run_on(nodes, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    auto& x = results[static_cast<std::size_t>(comm.rank())];
    x = values<T>(comm.rank(), count);
    comm.all_reduce(x, reduction);
    require(wanted.is(x.data(), 0, count), "all_reduce");
    for (const int root : {0, comm.size() - 1}) {
      const auto in = values<T>(comm.rank(), count);
      std::vector<T> out(count);
      comm.reduce(in, out, root, reduction);
      require(comm.rank() != root || wanted.is(out.data(), 0, count), "reduce");
      require(std::memcmp(in.data(), values<T>(comm.rank(), count).data(), count * sizeof(T)) == 0,
              "the input of reduce");
      // In place.
      auto both = in;
      comm.reduce(both, both, root, reduction);
      require(comm.rank() != root || wanted.is(both.data(), 0, count), "reduce in place");
    }
    const auto in = values<T>(comm.rank(), parts);
    std::vector<T> out(each);
    comm.reduce_scatter(in, out, reduction);
    require(wanted.is(out.data(), each * static_cast<std::size_t>(comm.rank()), each),
            "reduce_scatter");
  });
  const std::string what = name_of(nodes) + ", " + reduction.name() + " of " +
                           std::to_string(count) + " " + to_string(dtype_of<T>::value);
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), what << ": " << outcome.text);
  for (const auto& each_result : results) {
    CHECK_MESSAGE(std::memcmp(each_result.data(), results[0].data(), count * sizeof(T)) == 0, what);
  }
}

/// Each rank's bytes to a root, from a root, and parts of differing length to all.
void check_parts(Communicator& comm, std::size_t bytes) {
  using Bytes = std::vector<std::uint8_t>;
  const auto n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  Bytes everything, different;
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto part = values<std::uint8_t>(rank, bytes);
    everything.insert(everything.end(), part.begin(), part.end());
    counts.push_back(rank % 3 == 1 ? 0 : bytes / static_cast<std::size_t>(rank + 1));
    different.insert(different.end(), part.begin(),
                     part.begin() + static_cast<std::ptrdiff_t>(counts.back()));
  }
  const auto mine = values<std::uint8_t>(comm.rank(), bytes);
  for (const int root : {0, comm.size() - 1, comm.size() / 2}) {
    const bool here = comm.rank() == root;
    Bytes gathered(here ? n * bytes : 0), dealt(here ? n * bytes : 0), part(bytes);
    std::copy_n(everything.begin(), dealt.size(), dealt.begin());
    comm.gather(mine, gathered, root);
    require(!here || gathered == everything, "gather");
    comm.scatter(dealt, part, root);
    require(part == mine, "scatter");
  }
  Bytes all(different.size());
  const Bytes own(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(counts[me]));
  comm.all_gather_v(own, all, counts);
  require(all == different, "all_gather_v");
}

void check_moves(const Nodes& nodes, std::size_t bytes) {
  const auto outcomes = run_on(nodes, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    for (const int root : {0, comm.size() - 1, comm.size() / 2}) {
      auto x = values<std::uint8_t>(comm.rank(), bytes);
      comm.broadcast(x, root);
      require(x == values<std::uint8_t>(root, bytes), "broadcast");
    }
    const auto mine = values<std::uint8_t>(comm.rank(), bytes);
    std::vector<std::uint8_t> all(bytes * static_cast<std::size_t>(comm.size()));
    comm.all_gather(mine, all);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto part = values<std::uint8_t>(rank, bytes);
      require(std::equal(part.begin(), part.end(),
                         all.begin() + static_cast<std::ptrdiff_t>(bytes) * rank),
              "all_gather");
    }
    check_parts(comm, bytes);
    comm.barrier();
  });
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE(outcome.ok(), name_of(nodes) << ", " << bytes << ": " << outcome.text);
  }
}

using Call = std::pair<const char*, void (*)(Communicator&)>;

std::vector<float>& floats(std::size_t count) {
  thread_local std::vector<float> x;
  x.assign(count, 1);
  return x;
}

/// Some go by their nodes and some do not.
const std::vector<Call> calls = {
    {"barrier", [](Communicator& comm) { comm.barrier(); }},
    {"broadcast", [](Communicator& comm) { comm.broadcast(floats(8), 1); }},
    {"all_reduce", [](Communicator& comm) { comm.all_reduce(floats(8)); }},
    {"all_reduce", [](Communicator& comm) { comm.all_reduce(floats(100000)); }},
    {"reduce", [](Communicator& comm) { comm.reduce(floats(8), floats(8), 2); }},
    {"gather",
     [](Communicator& comm) {
       std::vector<float> in(3), out(3 * static_cast<std::size_t>(comm.size()));
       comm.gather(in, out, comm.size() - 1);
     }},
    {"all_to_all",
     [](Communicator& comm) {
       std::vector<float> in(static_cast<std::size_t>(comm.size())), out(in.size());
       comm.all_to_all(in, out);
     }},
};

}  // namespace

TEST_CASE("reductions by node have the bits of the definition, wherever ranks are") {
  for (const Nodes& nodes : layouts) {
    // By leaders; then a piece, several pieces, and not a whole number of them.
    for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{150'001}}) {
      check_reductions<float>(nodes, ReduceOp::sum, count);
      check_reductions<bfloat16>(nodes, ReduceOp::mean, count);
      check_reductions<float>(nodes, Reduction(ReduceOp::sum).canonical(), count);
      check_reductions<std::int32_t>(nodes, ReduceOp::sum, count);
      check_reductions<float>(nodes, Reduction(ReduceOp::sum).any_order(), count);
    }
    check_reductions<float16>(nodes, ReduceOp::sum, 400'003);
    check_reductions<float>(nodes, ReduceOp::max, 400'003);
    check_reductions<double>(nodes, Reduction::premul_sum(0.1), 100'000);
    check_reductions<float16>(nodes, Reduction(ReduceOp::mean).any_order(), 100'000);
  }
}

TEST_CASE("bytes by node arrive where they belong, wherever ranks are") {
  for (const Nodes& nodes : layouts) {
    for (const std::size_t bytes : {0UL, 1UL, 100UL, 9000UL, 70'000UL, 1'300'001UL}) {
      check_moves(nodes, bytes);
    }
  }
}

TEST_CASE("whatever one rank calls instead of what the others do, no rank waits for long") {
  for (const Nodes& nodes : {layouts[0], layouts[2], layouts[5]}) {
    for (const Call& theirs : calls) {
      for (const Call& mine : calls) {
        if (theirs.second == mine.second) continue;
        for (std::size_t odd = 0; odd < nodes.size(); ++odd) {
          const auto began = Clock::now();
          const auto outcomes = run_on(nodes, [&](const World& world) {
            Communicator comm(world);
            comm.set_timeout(20s);
            comm.barrier();
            (comm.rank() == static_cast<int>(odd) ? mine : theirs).second(comm);
            comm.barrier();
            comm.barrier();
          });
          // A rank that has no connection to any of them may hear of their end before it hears why.
          int told = 0;
          for (const auto& outcome : outcomes) {
            told += outcome.code == Errc::mismatch;
            CHECK_MESSAGE((outcome.code == Errc::mismatch || outcome.code == Errc::peer_lost),
                          name_of(nodes) << ", rank " << odd << " in " << std::string(mine.first)
                                         << ", others in " << std::string(theirs.first) << ": "
                                         << outcome.text);
          }
          CHECK(told >= 2);
          // Found by comparing, not by waiting for the timeout of 20 s.
          CHECK(Clock::now() - began < 10s);
        }
      }
    }
  }
}

TEST_CASE("wrong arguments on one rank of a node reach the ranks of all nodes") {
  for (const Nodes& nodes : layouts) {
    const auto outcomes = run_on(nodes, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      comm.barrier();
      comm.broadcast(floats(8), comm.rank() == 1 ? 99 : 0);
      comm.barrier();
      comm.barrier();
    });
    CHECK(outcomes[1].code == Errc::misuse);
    for (const auto& outcome : outcomes) {
      CHECK_MESSAGE(outcome.mentions("there is no rank 99"), name_of(nodes)
                                                                 << ": " << outcome.text);
    }
  }
}

TEST_CASE("a timeout names the absent ranks of all nodes") {
  for (const Nodes& nodes : layouts) {
    testing::Event over;
    const auto outcomes = run_on(nodes, [&](const World& world) {
      Communicator comm(world);
      comm.barrier();
      if (comm.rank() == 1) return require(over.wait(), "nobody timed out");
      try {
        comm.all_reduce(floats(8), ReduceOp::sum, {.timeout = 300ms});
      } catch (const Error&) {
        over.set();
        throw;
      }
    });
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      if (rank == 1) continue;
      CHECK(outcomes[rank].code == Errc::timeout);
      CHECK_MESSAGE(outcomes[rank].mentions("absent: rank 1 ("), outcomes[rank].text);
      CHECK_MESSAGE(!outcomes[rank].mentions("; rank"), outcomes[rank].text);
    }
  }
}

TEST_CASE("a rank that leaves, and one that gives up, end what ranks of all nodes wait for") {
  for (const Nodes& nodes : layouts) {
    for (const bool aborts : {false, true}) {
      const auto outcomes = run_on(nodes, [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(20s);
        comm.barrier();
        if (comm.rank() == 1 && !aborts) return;
        if (comm.rank() == 1) comm.abort();
        comm.all_reduce(floats(50'000));
      });
      for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        const auto& outcome = outcomes[rank];
        if (rank == 1) {
          CHECK_MESSAGE((aborts ? outcome.code == Errc::aborted : outcome.ok()), outcome.text);
        } else {
          CHECK_MESSAGE((outcome.code == Errc::peer_lost || outcome.code == Errc::aborted),
                        name_of(nodes) << ": " << outcome.text);
        }
      }
    }
  }
}
