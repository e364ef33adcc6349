// Every operation, element type, count and number of ranks against a reference computed in plain
// loops. The default run takes a part of the grid; DLAUNCH_TEST_FULL=1 takes all of it.
#include "tests/support/grid.hpp"

#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cstring>

#include <doctest/doctest.h>

using namespace dlaunch;
using testing::run_ranks;
namespace grid = testing::grid;

namespace {

using testing::is_full;

std::vector<int> sizes() {
  return is_full() ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9} : std::vector{1, 2, 3, 5, 8};
}

}  // namespace

TEST_CASE("every call with every type, count and number of ranks") {
  for (const int size : sizes()) {
    CAPTURE(size);
    const auto outcomes = run_ranks(size, [](const World& world) {
      Communicator comm(world);
      for (const std::size_t count : grid::counts()) grid::check_all_types(comm, count);
      comm.barrier();
    });
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

TEST_CASE("large tensors take the way in parts and give the same bits") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto outcomes = run_ranks(size, [](const World& world) {
      Communicator comm(world);
      const std::size_t count = (std::size_t{3} << 20) / sizeof(float) + 7;
      std::vector<float> x(count);
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = 1.0f / static_cast<float>(i + 1 + 7 * static_cast<std::size_t>(comm.rank()));
      }
      std::vector<float> folded(count), in = x;
      comm.reduce(in, folded, 1);
      comm.broadcast(folded, 1);
      // Reduced in rank order, as a loop on one rank does it.
      std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
      comm.all_gather(x, all);
      std::vector<float> reference(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
      for (std::size_t i = count; i < all.size(); ++i) reference[i % count] += all[i];
      std::vector<float> prefix(count), before(count);
      comm.scan(x, prefix);
      comm.exscan(x, before);
      comm.all_reduce(x);
      const auto same = [&](const std::vector<float>& got) {
        return std::memcmp(got.data(), reference.data(), count * sizeof(float)) == 0;
      };
      if (!same(x)) throw std::runtime_error("all_reduce has other bits");
      if (comm.rank() + 1 == comm.size() && !same(prefix)) {
        throw std::runtime_error("scan has other bits on the last rank");
      }
      // What the ranks before came to, and this one's own, is what it came to.
      for (std::size_t i = 0; comm.rank() > 0 && i < count; ++i) {
        if (before[i] + in[i] != prefix[i]) throw std::runtime_error("exscan has other bits");
      }
      if (!same(folded)) throw std::runtime_error("reduce has other bits");
      // In small pieces the other algorithm runs.
      std::vector<float> small(100);
      for (std::size_t i = 0; i < small.size(); ++i) {
        small[i] = 1.0f / static_cast<float>(i + 1 + 7 * static_cast<std::size_t>(comm.rank()));
      }
      comm.all_reduce(small);
      if (std::memcmp(small.data(), reference.data(), small.size() * sizeof(float)) != 0) {
        throw std::runtime_error("a small all_reduce has other bits than a large one");
      }
      // What all ranks came to is the same by either call.
      const auto ends_alike = [&]<class T>(T, const Reduction& reduction) {
        std::vector<T> data(40000), last(data.size());
        for (std::size_t i = 0; i < data.size(); ++i) {
          data[i] = static_cast<T>(
              static_cast<float>((i * 7 + 3 * static_cast<std::size_t>(comm.rank())) % 11) + 0.3F);
        }
        comm.scan(data, last, reduction);
        comm.all_reduce(data, reduction);
        if (comm.rank() + 1 < comm.size()) return;
        if (std::memcmp(last.data(), data.data(), data.size() * sizeof(T)) != 0) {
          throw std::runtime_error("scan by " + reduction.name() + " of " +
                                   to_string(dtype_of<T>::value) + " has other bits");
        }
      };
      ends_alike(float16(), ReduceOp::mean);
      ends_alike(bfloat16(), ReduceOp::sum);
      ends_alike(0.0F, Reduction::premul_sum(0.1));
      ends_alike(0.0, ReduceOp::product);
      ends_alike(0.0F, Reduction(ReduceOp::sum).canonical());
      ends_alike(std::int32_t(), ReduceOp::max);
    });
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}
