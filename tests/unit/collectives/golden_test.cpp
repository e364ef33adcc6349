// Results that are fixed by definition, or were measured on PyTorch where it is right.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cmath>
#include <limits>
#include <numeric>

#include <doctest/doctest.h>

using namespace dlaunch;
using testing::check_all;
using testing::run_ranks;

namespace {

using Longs = std::vector<std::int64_t>;

template <class T>
void require_equal(const std::vector<T>& got, const std::vector<T>& wanted, const char* what) {
  if (!(got == wanted)) throw std::runtime_error(std::string(what) + " differs");
}

Longs iota(std::int64_t first) {
  Longs x(4);
  std::iota(x.begin(), x.end(), first);
  return x;
}

}  // namespace

TEST_CASE("four ranks, t = [r + 1, 10 (r + 1)]") {
  check_all(run_ranks(4, [](const World& world) {
    Communicator comm(world);
    const auto reduced = [&](ReduceOp op) {
      Longs t{comm.rank() + 1, 10 * (comm.rank() + 1)};
      comm.all_reduce(t, op);
      return t;
    };
    require_equal(reduced(ReduceOp::sum), {10, 100}, "sum");
    require_equal(reduced(ReduceOp::product), {24, 240000}, "product");
    require_equal(reduced(ReduceOp::max), {4, 40}, "max");
    require_equal(reduced(ReduceOp::min), {1, 10}, "min");
    require_equal(reduced(ReduceOp::band), {0, 0}, "band");
    require_equal(reduced(ReduceOp::bor), {7, 62}, "bor");
    require_equal(reduced(ReduceOp::bxor), {4, 40}, "bxor");
    require_equal(reduced(ReduceOp::land), {1, 1}, "land");
    require_equal(reduced(ReduceOp::lor), {1, 1}, "lor");
    require_equal(reduced(ReduceOp::lxor), {0, 0}, "lxor");
    Longs some{comm.rank() == 2 ? 0 : 7, comm.rank() == 2 ? 7 : 0, 0};
    comm.all_reduce(some, ReduceOp::lxor);
    require_equal(some, {1, 1, 0}, "lxor of three and of one");
  }));
}

TEST_CASE("all_to_all, reduce_scatter, all_gather") {
  check_all(run_ranks(4, [](const World& world) {
    Communicator comm(world);
    const std::int64_t r = comm.rank();
    Longs out(4);
    const Longs in = iota(10 * r);
    comm.all_to_all(in, out);
    require_equal(out, {r, 10 + r, 20 + r, 30 + r}, "all_to_all");
    Longs part(1);
    comm.reduce_scatter(in, part);
    require_equal(part, {60 + 4 * r}, "reduce_scatter");
    const Longs mine{10 * r};
    comm.all_gather(mine, out);
    require_equal(out, {0, 10, 20, 30}, "all_gather");
  }));
}

TEST_CASE("16-bit floats are accumulated in f32 and rounded once") {
  check_all(run_ranks(4, [](const World& world) {
    Communicator comm(world);
    const float mine = comm.rank() == 3 ? 2048.0f : 1.0f;
    std::vector<float16> half{float16(mine)};
    comm.all_reduce(half);
    require_equal(half, {float16(2052.0f)}, "f16: 2051 rounds to 2052");
    std::vector<bfloat16> brain{bfloat16(comm.rank() == 3 ? 256.0f : 1.0f)};
    comm.all_reduce(brain);
    require_equal(brain, {bfloat16(260.0f)}, "bf16: 259 rounds to 260");
  }));
}

TEST_CASE("a NaN of any rank wins in min and max") {
  for (const int bearer : {0, 1, 2}) {
    check_all(run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      const double mine =
          comm.rank() == bearer ? std::numeric_limits<double>::quiet_NaN() : comm.rank();
      for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
        double x = mine;
        comm.all_reduce(x, op);
        if (!std::isnan(x)) throw std::runtime_error("the NaN was lost in f64");
        std::vector<float16> half{float16(static_cast<float>(mine))};
        comm.all_reduce(half, op);
        if (!std::isnan(static_cast<float>(half[0]))) {
          throw std::runtime_error("the NaN was lost in f16");
        }
      }
    }));
  }
}

TEST_CASE("means, factors, operations of one's own") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    std::vector<int> x{comm.rank(), -comm.rank() - 1};
    comm.all_reduce(x, ReduceOp::mean, {.truncate_mean = true});
    require_equal(x, {1, -2}, "truncated mean");
    std::vector<std::int8_t> narrow{100};
    comm.all_reduce(narrow, ReduceOp::mean, {.truncate_mean = true});
    require_equal(narrow, {std::int8_t{100}}, "the mean of bytes does not wrap");
    std::vector<float> y{2.0f};
    comm.all_reduce(y, Reduction::premul_sum(0.5));
    require_equal(y, {3.0f}, "premul_sum");

    // Not commutative: shows the order of the ranks.
    const auto append = Reduction::custom(
        "append", [](void* accumulated, const void* next, std::size_t count, DType) {
          auto* a = static_cast<int*>(accumulated);
          const auto* b = static_cast<const int*>(next);
          for (std::size_t i = 0; i < count; ++i) a[i] = 10 * a[i] + b[i];
        });
    std::vector<int> digits{comm.rank() + 1};
    comm.all_reduce(digits, append);
    require_equal(digits, {123}, "custom");
  }));
}

TEST_CASE("the canonical order folds neighbours first, whatever the size and the call") {
  check_all(run_ranks(5, [](const World& world) {
    Communicator comm(world);
    const auto canonical = Reduction(ReduceOp::sum).canonical();
    // In the order of the ranks the ones vanish beside 2^24, as pairs they do not.
    const float mine = comm.rank() == 0 ? 0x1p24f : 1.0f;
    for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{100'003}}) {
      std::vector<float> x(count, mine), y(count, mine), z(count), part(count);
      comm.all_reduce(x);
      comm.all_reduce(y, canonical);
      const std::vector<float> all(count * 5, mine), in(count, mine);
      comm.reduce(in, z, 3, canonical);
      comm.reduce_scatter(all, part, canonical);
      require_equal(x, std::vector<float>(count, 0x1p24f), "in rank order");
      // ((2^24 + 1) + (1 + 1)) + 1, where an f32 is even.
      const std::vector<float> wanted(count, 0x1p24f + 4);
      require_equal(y, wanted, "canonical all_reduce");
      if (comm.rank() == 3) require_equal(z, wanted, "canonical reduce");
      require_equal(part, wanted, "canonical reduce_scatter");
    }
  }));
  const auto outcomes = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<float> x{1};
    const Reduction sum;
    comm.all_reduce(x, comm.rank() == 0 ? sum : sum.canonical());
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK(outcome.mentions("order"));
  }
}

TEST_CASE("strided views are packed and unpacked") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    // A column of a 3 x 2 matrix.
    std::vector<int> matrix{1, 10, 2, 20, 3, 30};
    const TensorView column(matrix.data() + 1, 3, DType::i32, {}, 2);
    comm.all_reduce(column);
    require_equal(matrix, {1, 20, 2, 40, 3, 60}, "all_reduce of a column");
    if (comm.rank() == 0) {
      comm.send(column, 1);
    } else {
      std::vector<int> other(6);
      comm.recv(TensorView(other.data(), 3, DType::i32, {}, 2), 0);
      require_equal(other, {20, 0, 40, 0, 60, 0}, "recv into a column");
    }
  }));
}

TEST_CASE(
    "operations that make no sense name the operation and the type, and nothing else breaks") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    const auto refused = [&](TensorView view, const Reduction& op, const std::string& text) {
      try {
        comm.all_reduce(view, op);
      } catch (const Error& error) {
        if (error.errc() == Errc::misuse &&
            std::string(error.what()).find(text) != std::string::npos) {
          return;
        }
        throw;
      }
      throw std::runtime_error("not refused: " + text);
    };
    std::vector<float> reals(1);
    std::vector<std::complex<float>> numbers(1);
    std::vector<int> whole(1);
    refused(reals, ReduceOp::band, "band of f32");
    refused(numbers, ReduceOp::max, "max of c64");
    refused(whole, ReduceOp::mean, "mean of i32");
    refused(whole, ReduceOp::mean, "cast first");
    refused(whole, Reduction::premul_sum(2), "premul_sum of i32");
    whole[0] = 1;
    comm.all_reduce(whole);
    require_equal(whole, {2}, "the call after it");
  }));
}

TEST_CASE("started calls complete in their order") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    std::vector<int> a{1}, b{comm.rank()}, c{2};
    Work first = comm.start_all_reduce(a);
    Work second = comm.start_broadcast(b, 2);
    comm.all_reduce(c);  // Behind both.
    if (!first.done() || !second.done()) throw std::runtime_error("a later call overtook");
    first.wait();
    second.wait();
    require_equal(a, {3}, "started all_reduce");
    require_equal(b, {2}, "started broadcast");
    require_equal(c, {6}, "the call behind them");
  }));
}
