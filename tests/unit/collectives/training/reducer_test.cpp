// Gradients in buckets: which ones, in which order, and what becomes of them.
#include "collectives/training/bucket_plan.hpp"
#include "tests/support/mixed_ranks.hpp"
#include "tests/support/outcomes.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Outcome;
using testing::run_ranks;

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

using Buckets = std::vector<std::vector<std::size_t>>;

/// Parameters of these counts; only a plan may be made of them.
Buckets planned(const std::vector<std::pair<std::size_t, DType>>& parameters,
                const std::vector<std::size_t>& order, std::size_t first, std::size_t bytes) {
  std::vector<Parameter> made;
  for (const auto& [count, dtype] : parameters) {
    made.push_back({"", TensorView(nullptr, count, dtype)});
  }
  return training::plan_buckets(made, order, first, bytes);
}

/// Values and gradients of some shapes.
struct Model {
  explicit Model(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) {
      values.emplace_back(count, 1.0F);
      gradients.emplace_back(count, 0.0F);
    }
  }
  std::vector<Parameter> parameters() {
    std::vector<Parameter> made;
    for (std::size_t i = 0; i < values.size(); ++i) {
      made.push_back({"p" + std::to_string(i), values[i], gradients[i]});
    }
    return made;
  }
  /// Element j of gradient i on this rank.
  static float element(int rank, std::size_t i, std::size_t j, int step) {
    return static_cast<float>((rank + 1) * (static_cast<int>((i * 7 + j) % 13) + step));
  }
  void compute(int rank, int step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::size_t j = 0; j < gradients[i].size(); ++j) {
        gradients[i][j] = element(rank, i, j, step);
      }
    }
  }
  /// Exact in float: small whole numbers, and ranks that are a power of two.
  bool is_mean(int ranks, int step) const {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::size_t j = 0; j < gradients[i].size(); ++j) {
        float wanted = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          wanted += element(rank, i, j, step) / static_cast<float>(ranks);
        }
        if (gradients[i][j] != wanted) return false;
      }
    }
    return true;
  }
  std::vector<std::vector<float>> values, gradients;
};

}  // namespace

TEST_CASE("buckets fill in the order of readiness, the first one sooner") {
  constexpr auto f32 = DType::f32, f64 = DType::f64;
  CHECK(training::guessed_order(3) == std::vector<std::size_t>{2, 1, 0});
  const std::vector<std::pair<std::size_t, DType>> five(5, {10, f32});
  CHECK(planned(five, {4, 3, 2, 1, 0}, 40, 80) == Buckets{{4}, {3, 2}, {1, 0}});
  CHECK(planned(five, {4, 3, 2, 1, 0}, 41, 81) == Buckets{{4, 3}, {2, 1, 0}});
  CHECK(planned(five, {0, 2, 4, 1, 3}, 1, 1) == Buckets{{0}, {2}, {4}, {1}, {3}});
  CHECK(planned(five, {4, 3, 2, 1, 0}, 4000, 4000) == Buckets{{4, 3, 2, 1, 0}});
  CHECK(planned({}, {}, 1, 1).empty());
  CHECK(planned({{10, f32}, {10, f64}, {10, f32}, {10, f64}}, {3, 2, 1, 0}, 1000, 1000) ==
        Buckets{{3, 1}, {2, 0}});
  CHECK(planned({{0, f32}, {10, f32}}, {1, 0}, 1, 1) == Buckets{{1}, {0}});
}

TEST_CASE("gradients of any size, ready in another order on each rank, become their mean") {
  struct Layout {
    int ranks;
    std::vector<std::vector<std::int32_t>> nodes;  // None: as the environment says.
  };
  for (const Layout& layout :
       {Layout{1, {}}, Layout{2, {}}, Layout{4, {}}, Layout{4, {{0, 2}, {1}, {3}}}}) {
    const int ranks = layout.ranks;
    CAPTURE(ranks);
    CAPTURE(layout.nodes.size());
    std::vector<Buckets> before(static_cast<std::size_t>(ranks)), after = before;
    std::vector<std::vector<std::size_t>> first_order(static_cast<std::size_t>(ranks));
    check_all(run_ranks(
        ranks,
        [&](const World& world) {
          Communicator comm(world);
          comm.set_timeout(60s);
          Model model({5000, 1, 0, 300, 70000, 2, 2, 900, 1024, 33});
          GradientReducer reducer(comm, model.parameters(), {},
                                  {.first_bucket_bytes = 1000, .bucket_bytes = 5000});
          const auto me = static_cast<std::size_t>(comm.rank());
          before[me] = reducer.buckets();
          std::mt19937 random(static_cast<unsigned>(comm.rank()));
          std::vector<std::size_t> order(model.values.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          for (int step = 0; step < 6; ++step) {
            std::shuffle(order.begin(), order.end(), random);
            if (step == 0) first_order[me] = order;
            reducer.begin();
            model.compute(comm.rank(), step);
            for (const std::size_t i : order) reducer.ready(i);
            reducer.finish();
            require(model.is_mean(comm.size(), step), "a mean is wrong");
          }
          after[me] = reducer.buckets();
        },
        testing::mixed_memberships(layout.nodes)));
    for (const Buckets& buckets : before) CHECK(buckets == before[0]);
    for (const Buckets& buckets : after) {
      std::vector<std::size_t> summed;
      for (const auto& bucket : buckets) summed.insert(summed.end(), bucket.begin(), bucket.end());
      CHECK(summed == first_order[0]);
    }
  }
}

TEST_CASE("a bucket is summed before later gradients are computed") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<float> a(100), b(100);
    GradientReducer reducer(comm, {{"a", a}, {"b", b}}, {},
                            {.first_bucket_bytes = 1, .bucket_bytes = 1});
    const auto gradient = [&](std::size_t i) {
      return static_cast<float*>(reducer.gradient(i).data);
    };
    reducer.begin();
    std::fill_n(gradient(1), 100, static_cast<float>(comm.rank() * 2 + 1));
    reducer.ready(1);
    comm.barrier();  // Comes after what was started before it.
    require(gradient(1)[0] == 2 && gradient(1)[99] == 2, "the mean is there");
    std::fill_n(gradient(0), 100, 8.0F);
    reducer.ready(0);
    reducer.finish();
    require(gradient(0)[0] == 8, "the other one, too");
  }));
}

TEST_CASE("every type that has a mean, strided or not") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    const auto mine = static_cast<float>(comm.rank() * 2 + 1);  // The mean is 2.
    std::vector<float> f32(40, mine), values(40);
    std::vector<double> f64(10, static_cast<double>(mine));
    std::vector<float16> f16(10, float16(mine));
    std::vector<bfloat16> bf16(10, bfloat16(mine));
    std::vector<std::complex<float>> c64(10, {mine, -mine}), column(30, {mine, 2 * mine});
    std::vector<std::complex<double>> c128(10, {static_cast<double>(mine), 0});
    std::vector<double> f64_values(10);
    std::vector<float16> f16_values(10);
    std::vector<bfloat16> bf16_values(10);
    std::vector<std::complex<float>> c64_values(10), column_values(10);
    std::vector<std::complex<double>> c128_values(10);
    const TensorView every_fourth(f32.data(), 10, DType::f32, {}, 4);
    GradientReducer reducer(comm,
                            {{"f32", {values.data(), 10, DType::f32}, every_fourth},
                             {"f64", f64_values, f64},
                             {"f16", f16_values, f16},
                             {"bf16", bf16_values, bf16},
                             {"c64", c64_values, c64},
                             {"column", column_values, {column.data(), 10, DType::c64, {}, 3}},
                             {"c128", c128_values, c128}});
    reducer.begin();
    for (std::size_t i = 0; i < 7; ++i) reducer.ready(i);
    reducer.finish();
    for (std::size_t i = 0; i < 10; ++i) {
      require(f32[4 * i] == 2 && f32[4 * i + 1] == mine, "f32");
      require(f64[i] == 2 && c128[i] == std::complex<double>(2, 0), "f64, c128");
      require(f16[i] == float16(2) && bf16[i] == bfloat16(2), "16 bits");
      require(c64[i] == std::complex<float>(2, -2), "c64");
      require(column[3 * i] == std::complex<float>(2, 4), "a column");
      require(column[3 * i + 1] == std::complex<float>(mine, 2 * mine), "beside the column");
    }
  }));
}

TEST_CASE("all ranks begin with rank 0's values, and each iteration with its buffers") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    const auto mine = static_cast<float>(comm.rank());
    std::vector<float> large(700000, mine), small(3, mine), strided(30, mine), gradient(700000);
    std::vector<std::int32_t> counter(2, comm.rank());
    GradientReducer reducer(comm,
                            {{"large", large, gradient},
                             {"small", small},
                             {"strided", {strided.data(), 10, DType::f32, {}, 3}}},
                            {counter});
    require(large == std::vector<float>(700000, 0) && small == std::vector<float>(3, 0), "values");
    require(strided[3] == 0 && strided[4] == mine, "strided");
    require(counter[0] == comm.rank(), "buffers are not parameters");
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      require(counter[1] == 10 * step, "rank 0's buffers");
      counter[1] = 10 * (step + 1) + comm.rank();
      for (std::size_t i = 0; i < 3; ++i) reducer.ready(i);
      reducer.finish();
    }
  }));
}

TEST_CASE("no_sync keeps gradients apart until the first iteration after it") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    Model model({3, 3});
    GradientReducer reducer(comm, model.parameters());
    const auto mine = static_cast<float>(comm.rank() * 2 + 1);
    const auto step = [&] {
      reducer.begin();
      for (std::size_t i = 0; i < 2; ++i) {
        for (float& element : model.gradients[i]) element += mine;
        reducer.ready(i);
      }
      reducer.finish();
    };
    {
      const auto apart = reducer.no_sync();
      step();
      step();
    }
    require(model.gradients[0] == std::vector<float>(3, 2 * mine), "apart");
    step();
    require(model.gradients[1] == std::vector<float>(3, 6), "summed");
  }));
}

TEST_CASE("parameters that some ranks, or all, did not use") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    Model model({4, 4, 4});
    GradientReducer reducer(comm, model.parameters(), {},
                            {.first_bucket_bytes = 1, .bucket_bytes = 1, .find_unused = true});
    for (int step = 0; step < 3; ++step) {
      for (auto& gradient : model.gradients) gradient.assign(4, 8);
      reducer.begin();
      reducer.ready(0);  // Both use 0, rank 1 uses 1, nobody uses 2.
      if (comm.rank() == 1) reducer.ready(1);
      reducer.finish();
      require(model.gradients[0] == std::vector<float>(4, 8), "used by both");
      require(model.gradients[1] == std::vector<float>(4, 4), "used by one");
      require(model.gradients[2] == std::vector<float>(4, 8), "used by nobody");
    }
  }));
}

TEST_CASE("gradients in the reducer's own memory") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<float> a(100, 1), b(2000, 1);
    GradientReducer reducer(comm, {{"a", a}, {"b", b}}, {},
                            {.first_bucket_bytes = 1, .bucket_bytes = 1});
    const auto gradient = [&](std::size_t i) {
      const TensorView view = reducer.gradient(i);
      return std::span<float>(static_cast<float*>(view.data), view.count);
    };
    require(gradient(1).size() == 2000 && gradient(1)[1999] == 0, "it begins as zeros");
    float accumulated = 0;
    for (int step = 0; step < 4; ++step) {
      reducer.begin();  // In the second one memory moves.
      for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
        for (float& element : gradient(i)) {
          require(element == accumulated, "values stay");
          element += static_cast<float>(comm.rank() * 2 + 1);
        }
        reducer.ready(i);
      }
      reducer.finish();
      accumulated += 2;
    }
    require(gradient(0)[0] == 8 && gradient(1)[1999] == 8, "means");
  }));
}

TEST_CASE("a shadow leaves the reducer's own gradients alone") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<float> a(100, 1);
    GradientReducer reducer(comm, {{"a", a}});
    Join join(reducer);
    const auto gradient = [&] { return static_cast<float*>(reducer.gradient(0).data); };
    for (int step = 0; step < 1 + comm.rank(); ++step) {
      reducer.begin();
      for (std::size_t i = 0; i < 100; ++i) gradient()[i] = 4;
      reducer.ready(0);
      reducer.finish();
    }
    join.finish();
    require(gradient()[99] == (comm.rank() == 0 ? 4 : 2), "the gradient it had last");
  }));
}

TEST_CASE("a communicator that has joinables may be moved, and may end before them") {
  check_all(run_ranks(2, [](const World& world) {
    std::optional<Communicator> first(std::in_place, world);
    first->set_timeout(20s);
    Model model({3, 5});
    std::optional<GradientReducer> reducer(std::in_place, *first, model.parameters());
    std::optional<Communicator> moved(std::move(*first));
    first.reset();
    const int rank = moved->rank();
    const auto step = [&](int number) {
      reducer->begin();
      model.compute(rank, number);
      reducer->ready(0);
      reducer->ready(1);
      reducer->finish();
      require(model.is_mean(2, number), "the mean");
    };
    {
      Join join(*reducer);
      for (int number = 0; number <= rank; ++number) {
        if (number == 0) step(number);
      }
      join.finish();
    }
    reducer.reset();
    reducer.emplace(*moved, model.parameters());
    step(2);
    moved.reset();
    try {
      step(3);
      throw std::runtime_error("a reducer went on without its communicator");
    } catch (const Error& error) {
      require(error.errc() == Errc::aborted, error.what());
    }
  }));
}
