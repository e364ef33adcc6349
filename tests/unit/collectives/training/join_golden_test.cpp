// Ranks with different numbers of inputs: every figure of the specification, and counts at random
// against plain arithmetic; over shared memory, over TCP, and where some ranks share and some do
// not.
#include "tests/support/linear_task.hpp"
#include "tests/support/mixed_ranks.hpp"
#include "tests/support/outcomes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Linear;
using testing::reduced_step;
using testing::run_ranks;
using testing::ShardedDescent;

namespace {

constexpr double tolerance = 1e-6;
using Ends = std::vector<Linear>;

bool is_close(float got, double wanted) {
  return std::abs(static_cast<double>(got) - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
}

bool same_bits(const Linear& a, const Linear& b) {
  return std::bit_cast<std::uint32_t>(a.w) == std::bit_cast<std::uint32_t>(b.w) &&
         std::bit_cast<std::uint32_t>(a.b) == std::bit_cast<std::uint32_t>(b.b);
}

void check_ends(const Ends& ends, double w, double b) {
  for (const Linear& end : ends) {
    CHECK_MESSAGE(is_close(end.w, w), end.w << " is not " << w);
    CHECK_MESSAGE(is_close(end.b, b), end.b << " is not " << b);
    CHECK(same_bits(end, ends.front()));
  }
}

/// Rank r trains on counts[r] inputs under a join.
Ends train(const std::vector<int>& counts, float rate, const JoinSettings& settings,
           std::vector<std::shared_ptr<testing::FakeMembership>> memberships = {}) {
  Ends models(counts.size());
  check_all(run_ranks(
      static_cast<int>(counts.size()),
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        Linear& model = models[static_cast<std::size_t>(comm.rank())];
        GradientReducer reducer(comm, model.parameters());
        Join join(reducer, settings);
        for (int step = 0; step < counts[static_cast<std::size_t>(comm.rank())]; ++step) {
          reduced_step(reducer, model, Linear::input(step, comm.rank()));
          model.descend(rate);
        }
        join.finish();
        comm.barrier();
      },
      std::move(memberships)));
  return models;
}

const JoinSettings by_world{};
const JoinSettings by_active{.divide_by_initial_world_size = false};

}  // namespace

TEST_CASE("five common steps of two ranks, number by number") {
  struct Step {
    double loss[2];
    double gw, gb, w, b;
  };
  const std::vector<Step> table = {
      {{5.0625, 9.0}, -6.75, -5.25, 0.83749998, 0.51249999},
      {{7.91015625, 11.51753902}, -14.109375, -6.20625019, 1.54296875, 0.82281250},
      {{2.39717460, 3.15700698}, -10.86363220, -3.32507801, 2.08615041, 0.98906642},
      {{0.11133417, 0.14193553}, 3.03001595, 0.71041107, 1.93464959, 0.95354587},
      {{0.13928282, 0.16474010}, -4.09838104, -0.77908802, 2.13956857, 0.99250025}};
  std::vector<std::vector<Linear>> seen(2);
  std::vector<std::vector<float>> losses(2);
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const auto rank = static_cast<std::size_t>(comm.rank());
    Linear model;
    GradientReducer reducer(comm, model.parameters());
    for (int step = 0; step < static_cast<int>(table.size()); ++step) {
      const float x = Linear::input(step, comm.rank());
      losses[rank].push_back(model.loss(x));
      reduced_step(reducer, model, x);
      model.descend(0.05F);
      seen[rank].push_back(model);
    }
  }));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(seen[rank].size() == table.size());
    for (std::size_t step = 0; step < table.size(); ++step) {
      CAPTURE(rank);
      CAPTURE(step);
      CHECK(is_close(losses[rank][step], table[step].loss[rank]));
      CHECK(is_close(seen[rank][step].gw, table[step].gw));
      CHECK(is_close(seen[rank][step].gb, table[step].gb));
      CHECK(is_close(seen[rank][step].w, table[step].w));
      CHECK(is_close(seen[rank][step].b, table[step].b));
    }
  }
}

TEST_CASE("rank 1 has one input more: both end with what it learned") {
  struct Row {
    int inputs;
    double gw, gb, w, b;
  };
  for (const Row& row : {Row{0, -4.5, -3, 0.72500002, 0.40000001},
                         Row{1, -8.484375, -3.39374995, 1.26171875, 0.68218750},
                         Row{2, -6.21878910, -1.77679682, 1.85390818, 0.91165233},
                         Row{5, 5.84802628, 0.89969635, 1.84716725, 0.94751543}}) {
    CAPTURE(row.inputs);
    const Ends ends = train({row.inputs, row.inputs + 1}, 0.05F, by_world);
    check_ends(ends, row.w, row.b);
    CHECK(is_close(ends[1].gw, row.gw));
    CHECK(is_close(ends[1].gb, row.gb));
  }
  for (const Row& row : {Row{0, -9, -6, 0.94999999, 0.55000001},
                         Row{1, -16.96875, -6.78749990, 1.68593752, 0.85187501},
                         Row{2, -12.43757820, -3.55359364, 2.16484761, 1.00049222},
                         Row{5, 11.69605255, 1.79939270, 1.55476594, 0.90253061}}) {
    CAPTURE(row.inputs);
    const Ends ends = train({row.inputs, row.inputs + 1}, 0.05F, by_active);
    check_ends(ends, row.w, row.b);
    CHECK(is_close(ends[1].gw, row.gw));
    CHECK(is_close(ends[1].gb, row.gb));
  }
}

TEST_CASE("four ranks with 3, 1, 2 and 3 inputs") {
  check_ends(train({3, 1, 2, 3}, 0.02F, by_world), 1.41536283, 0.58496666);
  check_ends(train({3, 1, 2, 3}, 0.02F, by_active), 1.75359273, 0.68209451);
}

TEST_CASE("ranks of two nodes and one that shares nothing end alike") {
  check_ends(train({3, 1, 2, 3}, 0.02F, by_world, testing::mixed_memberships({{0, 2}, {1}, {3}})),
             1.41536283, 0.58496666);
  check_ends(train({3, 1, 2, 3}, 0.02F, by_active, testing::mixed_memberships({{0, 3}, {1, 2}})),
             1.75359273, 0.68209451);
}

TEST_CASE("gradients that are never reset, as in the loop of the question") {
  struct Row {
    int inputs;
    double rank0, by_world, by_active;
  };
  for (const Row& row : {Row{1, 1, 1, 2}, Row{2, 2, 1.5, 3}, Row{5, 5, 3, 6}}) {
    for (const bool world_divides : {true, false}) {
      std::vector<Linear> models(2);
      check_all(run_ranks(2, [&](const World& world) {
        Communicator comm(world);
        Linear& model = models[static_cast<std::size_t>(comm.rank())];
        GradientReducer reducer(comm, model.parameters());
        Join join(reducer, {.divide_by_initial_world_size = world_divides});
        for (int step = 0; step < row.inputs + comm.rank(); ++step) {
          reducer.begin();
          model.gw += 1;
          reducer.ready(0);
          model.gb += 1;
          reducer.ready(1);
          reducer.finish();
        }
        join.finish();
      }));
      CAPTURE(row.inputs);
      CAPTURE(world_divides);
      const double rank1 = world_divides ? row.by_world : row.by_active;
      CHECK(is_close(models[0].gw, row.rank0));
      CHECK(is_close(models[0].gb, row.rank0));
      CHECK(is_close(models[1].gw, rank1));
      CHECK(is_close(models[1].gb, rank1));
    }
  }
}

TEST_CASE("a running mean ends equal on all ranks: each step begins with the highest rank's") {
  for (const std::vector<int>& counts :
       {std::vector{2, 3}, {3, 1}, {3, 3, 1}, {1, 3, 3, 2}, {0, 2, 0}}) {
    CAPTURE(counts.size());
    CAPTURE(counts[0]);
    const auto size = static_cast<int>(counts.size());
    std::vector<float> means(counts.size());
    check_all(run_ranks(size, [&](const World& world) {
      Communicator comm(world);
      const auto me = static_cast<std::size_t>(comm.rank());
      Linear model;
      float& mean = means[me];
      GradientReducer reducer(comm, model.parameters(), {mean});
      Join join(reducer);
      for (int step = 0; step < counts[me]; ++step) {
        const float x = Linear::input(step, comm.rank());
        reducer.begin();
        mean = 0.9F * mean + 0.1F * x;
        model.zero_gradients();
        model.backward(x);
        reducer.ready(0);
        reducer.ready(1);
        reducer.finish();
        model.descend(0.05F);
      }
      join.finish();
    }));
    // All ranks with inputs begin a step with what the highest of them came to in the one before;
    // who had inputs longest ends it, the highest again.
    std::vector<float> wanted(counts.size());
    int last = -1;
    for (int step = 0; step < *std::max_element(counts.begin(), counts.end()); ++step) {
      for (int rank = 0; rank < size; ++rank) {
        if (counts[static_cast<std::size_t>(rank)] > step) last = rank;
      }
      const float common = wanted[static_cast<std::size_t>(last)];
      for (int rank = 0; rank < size; ++rank) {
        auto& mine = wanted[static_cast<std::size_t>(rank)];
        mine = common;
        if (counts[static_cast<std::size_t>(rank)] <= step) continue;
        mine = 0.9F * mine + 0.1F * Linear::input(step, rank);
      }
    }
    for (const float mean : means) {
      CHECK(is_close(mean, static_cast<double>(wanted[static_cast<std::size_t>(last)])));
      CHECK(std::bit_cast<std::uint32_t>(mean) == std::bit_cast<std::uint32_t>(means[0]));
    }
  }
}

TEST_CASE("a sharded optimizer in the same join steps with the shadow's gradients") {
  for (const bool swapped : {false, true}) {
    CAPTURE(swapped);
    std::vector<Linear> models(2);
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      Linear& model = models[static_cast<std::size_t>(comm.rank())];
      GradientReducer reducer(comm, model.parameters());
      ShardedDescent descent(comm, model, 0.05F);
      std::vector<Joinable*> joinables{&reducer, &descent};
      if (swapped && comm.rank() == 1) std::swap(joinables[0], joinables[1]);
      Join join(joinables);
      for (int step = 0; step < 2 + comm.rank(); ++step) {
        reduced_step(reducer, model, Linear::input(step, comm.rank()));
        descent.step();
      }
      join.finish();
    }));
    check_ends(models, 1.85390818, 0.91165233);
  }
}

TEST_CASE("counts at random against plain arithmetic") {
  std::mt19937 random(20261121);
  for (int round = 0; round < 12; ++round) {
    const int ranks = std::uniform_int_distribution(2, 5)(random);
    std::vector<int> counts;
    for (int rank = 0; rank < ranks; ++rank) {
      counts.push_back(std::uniform_int_distribution(0, 7)(random));
    }
    const bool world_divides = round % 2 == 0;
    CAPTURE(round);
    const Linear wanted = testing::reference_of(counts, 0.01F, world_divides);
    check_ends(train(counts, 0.01F, world_divides ? by_world : by_active),
               static_cast<double>(wanted.w), static_cast<double>(wanted.b));
  }
}
