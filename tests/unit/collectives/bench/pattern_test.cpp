// The checker against results made here one by one, and against the collectives themselves.
#include "collectives/bench/pattern.hpp"

#include "collectives/bench/calls.hpp"
#include "collectives/bench/measure.hpp"
#include "tests/support/ranks.hpp"

#include <cstring>
#include <set>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::bench;

namespace {

constexpr std::size_t count = 300;

/// The data that a rank gives, as floats.
std::vector<float> given(Case call) {
  std::vector<float> in(in_elements(call)), out(out_elements(call));
  fill(call, std::as_writable_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
  return operation(call.op).one_buffer() ? out : in;
}

std::uint64_t wrong_in(const Case& call, const std::vector<float>& out,
                       Depth depth = Depth::every_element) {
  return count_wrong(call, std::as_bytes(std::span(out)), depth);
}

Case case_of(Op op, int rank = 0, int ranks = 3) { return {op, rank, ranks, 1, count}; }

/// The right result of an all_reduce, made from what the ranks give.
std::vector<float> reduced(const Case& call) {
  std::vector<float> sum(count);
  for (int rank = 0; rank < call.ranks; ++rank) {
    Case other = call;
    other.rank = rank;
    const auto more = given(other);
    for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

}  // namespace

TEST_CASE("a right result is right, each planted error is found and counted") {
  const Case call = case_of(Op::all_reduce);
  auto result = reduced(call);
  CHECK(wrong_in(call, result) == 0);
  for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
    auto planted = result;
    planted[at] += 1;
    CHECK(wrong_in(call, planted) == 1);
    planted[at] = std::numeric_limits<float>::quiet_NaN();
    CHECK(wrong_in(call, planted) == 1);
    // Samples see the ends.
    CHECK(wrong_in(call, planted, Depth::sample) == (at == count / 2 ? 0 : 1));
  }
  result[7] += 1;
  result[8] += 1;
  CHECK(wrong_in(call, result) == 2);
}

TEST_CASE("no rank's contribution missing, doubled or in another's place goes unseen") {
  const Case call = case_of(Op::all_reduce);
  Case other = call;
  other.rank = 2;
  auto result = reduced(call);
  const auto part = given(other);
  for (const float factor : {-1.0F, 1.0F}) {
    auto planted = result;
    for (std::size_t i = 0; i < count; ++i) planted[i] += factor * part[i];
    CHECK(wrong_in(call, planted) > count / 2);
  }
  const Case gathered = case_of(Op::all_gather);
  std::vector<float> all;
  for (const int rank : {0, 1, 2}) {
    const auto more = given(case_of(Op::all_gather, rank));
    all.insert(all.end(), more.begin(), more.end());
  }
  CHECK(wrong_in(gathered, all) == 0);
  std::swap_ranges(all.begin(), all.begin() + count, all.begin() + count);
  CHECK(wrong_in(gathered, all) > count);
  // Shifted by one element, and by a block that is a power of two.
  for (const std::ptrdiff_t shift : {1, 64}) {
    auto shifted = reduced(call);
    std::rotate(shifted.begin(), shifted.begin() + shift, shifted.end());
    CHECK(wrong_in(call, shifted) > count / 2);
  }
}

TEST_CASE("pairings pair every rank with every other once") {
  for (const int ranks : {1, 2, 3, 4, 7, 8, 15}) {
    std::set<std::pair<int, int>> pairs;
    for (int pairing = 0; pairing < pairings(ranks); ++pairing) {
      int alone = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto partner = partner_of(rank, ranks, pairing);
        if (!partner) {
          ++alone;
          continue;
        }
        CHECK(partner_of(*partner, ranks, pairing) == rank);
        pairs.insert({rank, *partner});
      }
      CHECK(alone == ranks % 2);
    }
    CHECK(pairs.size() == static_cast<std::size_t>(ranks * (ranks - 1)));
  }
}

TEST_CASE("what was not written is wrong") {
  for (const auto& entry : operations()) {
    // The first rank gets nothing of an exscan, and rank 1 is the root.
    const Case call = case_of(entry.op, entry.op == Op::exscan ? 2 : 0);
    std::vector<float> in(in_elements(call)), out(out_elements(call));
    fill(call, std::as_writable_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
    const bool found = wrong_in(call, out) > out.size() / 2;
    CHECK_MESSAGE(found == !out.empty(), entry.name);
  }
}

TEST_CASE("the collectives of three ranks, every operation, type and reduction") {
  for (const int ranks : {2, 3}) {
    const auto outcomes = testing::run_ranks(ranks, [](const World& world) {
      Communicator comm(world);
      Settings settings;
      Arena in(comm, 1 << 16, Buffers::warm), out(comm, 1 << 16, Buffers::warm);
      for (const DType dtype :
           {DType::u8, DType::i8, DType::i16, DType::u32, DType::i64, DType::f16, DType::bf16,
            DType::f32, DType::f64, DType::boolean, DType::c64, DType::c128}) {
        for (const ReduceOp redop : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                     ReduceOp::mean, ReduceOp::bxor, ReduceOp::lxor}) {
          settings.dtype = dtype;
          settings.redop = redop;
          const std::string name = std::string("--dtype=") + to_string(dtype);
          const std::string how = std::string("--redop=") + to_string(redop);
          const std::vector<std::string> words{name, how};
          if (std::holds_alternative<EarlyExit>(parse_options(words))) continue;  // Makes no sense.
          for (const auto& entry : operations()) {
            if (redop != ReduceOp::sum && !entry.reduces()) continue;
            const auto amount = amount_for(entry, 3000, size_of(dtype), comm.size());
            Calls calls(comm, settings, entry, amount, in, out);
            if (calls.verify(1, Depth::every_element) != 0) {
              throw std::runtime_error(std::string(entry.name) + ' ' + name + ' ' + how);
            }
          }
        }
      }
    });
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

TEST_CASE("rotating buffers, started calls and in-place reductions give the same results") {
  const auto outcomes = testing::run_ranks(2, [](const World& world) {
    Communicator comm(world);
    Settings settings;
    settings.buffers = Buffers::rotating;
    settings.started = settings.in_place = true;
    Arena in(comm, 4096, settings.buffers), out(comm, 4096, settings.buffers);
    for (const auto& entry : operations()) {
      const auto amount = amount_for(entry, 4096, size_of(settings.dtype), comm.size());
      Calls calls(comm, settings, entry, amount, in, out);
      for (const long turn : {0L, 1L, 1'000'000'007L}) {
        if (calls.verify(turn, Depth::every_element) != 0) {
          throw std::runtime_error(std::string(entry.name));
        }
      }
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("a whole measurement: the same rows on all ranks, one for each size") {
  std::vector<std::vector<Row>> rows(2);
  const auto outcomes = testing::run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    Settings settings;
    settings.ops = {Op::barrier, Op::all_reduce, Op::ping_pong};
    settings.sizes = {4, 5, 4096};
    settings.check = true;
    settings.iterations = 3;
    settings.repetitions = 2;
    Arena in(comm, 4096, settings.buffers), out(comm, 4096, settings.buffers);
    rows[static_cast<std::size_t>(comm.rank())] = measure(comm, settings, in, out, {});
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  REQUIRE(rows[0].size() == 5);  // 5 bytes are 4 of f32, and a barrier has no size.
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    const Row& row = rows[0][i];
    CHECK(row.op == rows[1][i].op);
    CHECK(row.time_us == rows[1][i].time_us);
    CHECK(row.wrong == 0);
    CHECK(row.iterations == 3);
    CHECK(row.repetitions == 2);
    CHECK(row.least_us <= row.time_us);
    CHECK(row.time_us <= row.most_us);
    CHECK(row.p50_us <= row.max_us);
  }
}
