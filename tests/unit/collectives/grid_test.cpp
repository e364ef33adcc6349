// Every operation, element type, count and number of ranks against a reference computed in plain
// loops. The default run takes a part of the grid; DLAUNCH_TEST_FULL=1 takes all of it.
#include "tests/support/grid.hpp"

#include "tests/support/expect.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
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
      // Ranks of all three forms take part in one call: two buffers, one, and one that the others
      // may read in place.
      const SharedBuffer registered = comm.allocate(count * sizeof(float));
      auto* const shared = reinterpret_cast<float*>(registered.data());
      std::copy(in.begin(), in.end(), shared);
      for (int turn = 0; turn < 3; ++turn) {
        const int form = (comm.rank() + turn) % 3;
        std::vector<float> out(form == 0 ? count : 0), own = in;
        std::copy(in.begin(), in.end(), shared);
        float* const result = form == 0 ? out.data() : form == 1 ? own.data() : shared;
        if (form == 0) {
          comm.start_all_reduce_into(in, out).wait();
        } else {
          comm.all_reduce(std::span(result, count));
        }
        if (std::memcmp(result, reference.data(), count * sizeof(float)) != 0) {
          throw std::runtime_error("all_reduce_into has other bits");
        }
      }
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

TEST_CASE("where the parts lie is each rank's own affair") {
  // Small ones, those of several chunks, and one that is empty.
  for (const std::size_t most : {std::size_t{7}, std::size_t{90'000}}) {
    for (const int size : {1, 3, 4, 5}) {
      CAPTURE(size);
      CAPTURE(most);
      const auto outcomes = run_ranks(size, [most](const World& world) {
        Communicator comm(world);
        const auto n = static_cast<std::size_t>(comm.size());
        const auto me = static_cast<std::size_t>(comm.rank());
        std::vector<std::size_t> counts, begins{0};
        for (std::size_t rank = 0; rank < n; ++rank) {
          counts.push_back(rank == 1 ? 0 : most + rank);
          begins.push_back(begins.back() + counts.back());
        }
        const auto number = [](std::size_t rank, std::size_t i) {
          return static_cast<std::int64_t>(rank * 1'000'003 + i);
        };
        const std::size_t bytes = begins.back() * sizeof(std::int64_t);
        const SharedBuffer registered = comm.allocate(bytes);
        std::vector<std::int64_t> flat(begins.back()), mine(counts[me]);
        std::vector<std::vector<std::int64_t>> lists;
        for (const std::size_t count : counts) lists.emplace_back(count);
        // In turn: views of their own, one buffer, and one that the others can read in place.
        for (std::size_t turn = 0; turn < 3; ++turn) {
          const std::size_t form = (me + turn) % 3;
          auto* const whole =
              form == 1 ? flat.data() : reinterpret_cast<std::int64_t*>(registered.data());
          const auto at = [&](std::size_t rank, std::size_t i) -> std::int64_t& {
            return form == 0 ? lists[rank][i] : whole[begins[rank] + i];
          };
          const std::vector<TensorView> views(lists.begin(), lists.end());
          const TensorView all(whole, begins.back(), DType::i64);
          const auto check = [&](bool holds, const char* call) {
            if (!holds) throw std::runtime_error(std::string(call) + " is wrong");
          };

          for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number(me, i);
          if (form == 0) {
            comm.all_gather_list(mine, views);
          } else {
            comm.all_gather_v(mine, all, counts);
          }
          for (std::size_t rank = 0; rank < n; ++rank) {
            for (std::size_t i = 0; i < counts[rank]; ++i) {
              check(at(rank, i) == number(rank, i), "all_gather");
            }
          }
          for (std::size_t rank = 0; rank < n; ++rank) {
            for (std::size_t i = 0; i < counts[rank]; ++i) at(rank, i) = number(me + rank, i);
          }
          if (form == 0) {
            comm.reduce_scatter_list(std::vector<ConstTensorView>(views.begin(), views.end()),
                                     mine);
          } else {
            comm.reduce_scatter_v(all, mine, counts);
          }
          for (std::size_t i = 0; i < mine.size(); ++i) {
            std::int64_t sum = 0;
            for (std::size_t rank = 0; rank < n; ++rank) sum += number(rank + me, i);
            check(mine[i] == sum, "reduce_scatter");
          }
        }
      });
      for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
    }
  }
}
