// Reductions of a program's own elements, of values with their places, and of one rank alone.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <doctest/doctest.h>

using namespace dlaunch;
using testing::check_all;
using testing::run_ranks;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + " is wrong");
}

/// x -> by * x + plus, with numbers that wrap: in another order they come to something else.
struct Affine {
  std::uint64_t by = 1, plus = 0, ranks = 0;
  bool operator==(const Affine&) const = default;
};
static_assert(sizeof(Affine) == 24);

Affine then(const Affine& first, const Affine& second) {
  return {second.by * first.by, second.by * first.plus + second.plus, first.ranks + second.ranks};
}

void compose(void* accumulated, const void* next, std::size_t count, DType) {
  for (std::size_t i = 0; i < count; ++i) {
    Affine a, b;
    std::memcpy(&a, static_cast<std::byte*>(accumulated) + i * sizeof a, sizeof a);
    std::memcpy(&b, static_cast<const std::byte*>(next) + i * sizeof b, sizeof b);
    a = then(a, b);
    std::memcpy(static_cast<std::byte*>(accumulated) + i * sizeof a, &a, sizeof a);
  }
}
/// Its elements are so many maps each.
Reduction composed(std::size_t maps = 1) {
  return Reduction::custom(
      "compose",
      [=](void* accumulated, const void* next, std::size_t count, DType dtype) {
        compose(accumulated, next, count * maps, dtype);
      },
      maps * sizeof(Affine));
}

Affine given(int rank, std::size_t i) {
  const auto r = static_cast<std::uint64_t>(rank);
  return {2 * r + 3 + i, r * r + i + 1, 1};
}
Affine expected(int ranks, std::size_t i) {
  Affine all;
  for (int rank = 0; rank < ranks; ++rank) all = then(all, given(rank, i));
  return all;
}
std::vector<Affine> given(int rank, std::size_t first, std::size_t count) {
  std::vector<Affine> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = given(rank, first + i);
  return all;
}
void require_expected(const std::vector<Affine>& got, int ranks, std::size_t first,
                      const std::string& what) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    require(got[i] == expected(ranks, first + i), what + " at " + std::to_string(i));
  }
}

auto bytes_of(auto& values) { return std::as_writable_bytes(std::span(values)); }

/// With `count` maps, and parts of the v-form that differ by `step` maps.
void check_every_call(Communicator& comm, const Reduction& by, std::size_t count,
                      std::size_t step = 1) {
  const int me = comm.rank(), ranks = comm.size();
  const auto n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(me);
  const auto in = given(me, 0, count);
  const auto read = std::as_bytes(std::span(in));
  std::vector<Affine> out(count);
  comm.all_reduce_into(read, bytes_of(out), by);
  require_expected(out, ranks, 0, "all_reduce_into");
  auto inout = in;
  comm.all_reduce(bytes_of(inout), by);
  require_expected(inout, ranks, 0, "all_reduce");
  const int root = static_cast<int>(count) % ranks;
  comm.reduce(read, bytes_of(out), root, by);
  if (me == root) require_expected(out, ranks, 0, "reduce");
  comm.scan(read, bytes_of(out), by);
  require_expected(out, me + 1, 0, "scan");
  comm.exscan(read, bytes_of(out), by);
  if (me > 0) require_expected(out, me, 0, "exscan");

  const auto all = given(me, 0, count * n);
  comm.reduce_scatter(std::as_bytes(std::span(all)), bytes_of(out), by);
  require_expected(out, ranks, r * count, "reduce_scatter");
  std::vector<std::size_t> counts, begins{0};
  for (std::size_t rank = 0; rank < n; ++rank) {
    counts.push_back((count + rank * step) * sizeof(Affine));
    begins.push_back(begins.back() + count + rank * step);
  }
  const auto some = given(me, 0, begins.back());
  std::vector<Affine> part(count + r * step);
  comm.reduce_scatter_v(std::as_bytes(std::span(some)), bytes_of(part), counts, by);
  require_expected(part, ranks, begins[r], "reduce_scatter_v");
}

}  // namespace

TEST_CASE("elements of 24 bytes are reduced whole, in the order of the ranks") {
  // Few, and some beyond the chunks of every algorithm, in which 24 bytes do not go evenly.
  for (const int size : {1, 2, 3, 4, 5}) {
    CAPTURE(size);
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      for (const std::size_t count :
           std::initializer_list<std::size_t>{0, 1, 5, 100, 700, 30'011}) {
        check_every_call(comm, composed(), count);
        check_every_call(comm, composed().canonical(), count);
      }
      const SharedBuffer registered = comm.allocate(30'011 * sizeof(Affine));
      const auto in = given(comm.rank(), 0, 30'011);
      std::memcpy(registered.data(), in.data(), in.size() * sizeof(Affine));
      comm.all_reduce(std::span(registered.data(), in.size() * sizeof(Affine)), composed());
      std::vector<Affine> got(in.size());
      std::memcpy(got.data(), registered.data(), in.size() * sizeof(Affine));
      require_expected(got, comm.size(), 0, "all_reduce in place");
    }));
  }
}

TEST_CASE("elements of a program's own that may go in any order do") {
  for (const int size : {2, 3, 4, 5}) {
    CAPTURE(size);
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      // Longer than many a chunk's rest.
      using Votes = std::array<std::uint64_t, 125>;
      const auto by = Reduction::custom(
                          "votes",
                          [](void* accumulated, const void* next, std::size_t count, DType dtype) {
                            require(dtype == DType::u64, "the dtype");
                            auto* a = static_cast<std::uint64_t*>(accumulated);
                            const auto* b = static_cast<const std::uint64_t*>(next);
                            for (std::size_t i = 0; i < count * 125; ++i) a[i] += b[i];
                          },
                          sizeof(Votes))
                          .any_order();
      for (const std::size_t count : std::initializer_list<std::size_t>{1, 7, 64, 1'013}) {
        std::vector<std::uint64_t> votes(count * 125);
        std::iota(votes.begin(), votes.end(), static_cast<std::uint64_t>(comm.rank()));
        comm.all_reduce(votes, by);
        const auto n = static_cast<std::uint64_t>(comm.size());
        for (std::size_t i = 0; i < votes.size(); ++i) {
          require(votes[i] == n * i + n * (n - 1) / 2, "all_reduce");
        }
      }
    }));
  }
}

TEST_CASE("elements of any size are reduced, in the order of the ranks") {
  constexpr std::size_t maps = 60'000;  // 1.44 MB: more than two slots.
  for (const int size : {1, 2, 3, 4}) {
    CAPTURE(size);
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
        check_every_call(comm, composed(maps), count * maps, maps);
      }
    }));
  }
}

TEST_CASE("what is no whole element, or another size elsewhere is said") {
  const auto nothing = [](void*, const void*, std::size_t, DType) {};
  const auto refused = [&](std::size_t bytes, std::size_t of_elements, DType dtype) {
    return run_ranks(2, [=](const World& world) {
      Communicator comm(world);
      std::vector<std::byte> data(bytes);
      comm.all_reduce(TensorView(data.data(), bytes / size_of(dtype), dtype),
                      Reduction::custom("own", nothing, of_elements));
    });
  };
  for (const auto& outcome : refused(25, 24, DType::u8)) {
    CHECK(outcome.code == Errc::misuse);
    CHECK_MESSAGE(outcome.mentions("25 bytes are no whole number of the elements of 24 bytes"),
                  outcome.text);
  }
  for (const auto& outcome : refused(24, 12, DType::f64)) {
    CHECK(outcome.code == Errc::misuse);
    CHECK_MESSAGE(outcome.mentions("is no whole number of f64 elements"), outcome.text);
  }
  for (const auto& outcome : run_ranks(2, [&](const World& world) {
         Communicator comm(world);
         std::vector<std::byte> data(48);
         comm.all_reduce(data,
                         Reduction::custom("own", nothing, comm.rank() == 0 ? sizeof(Affine) : 16));
       })) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(outcome.mentions("of elements of 24 bytes"), outcome.text);
  }
}

TEST_CASE_TEMPLATE("the least and the greatest value are found with their places", T, std::int8_t,
                   std::uint8_t, std::int32_t, std::uint64_t, float, double, float16) {
  for (const int size : {1, 3, 5}) {
    CAPTURE(size);
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      const auto check = [&]<class Index>(Index) {
        using Pair = Located<T, Index>;
        for (const std::size_t count : std::initializer_list<std::size_t>{1, 33, 20'000}) {
          const auto number = [](int rank, std::size_t i) {
            return static_cast<T>(static_cast<float>((static_cast<std::size_t>(rank) * 3 + i) % 5));
          };
          const auto wanted = [&](std::size_t i, bool greatest) {
            Pair best{number(0, i), Index{7}};
            for (int rank = 1; rank < comm.size(); ++rank) {
              const auto now = static_cast<float>(number(rank, i));
              const auto before = static_cast<float>(best.value);
              // Larger ranks have smaller indices.
              const bool wins = greatest ? now >= before : now <= before;
              if (wins) best = {number(rank, i), static_cast<Index>(7 - rank)};
            }
            return best;
          };
          std::vector<Pair> least(count);
          for (std::size_t i = 0; i < count; ++i) {
            least[i] = {number(comm.rank(), i), static_cast<Index>(7 - comm.rank())};
          }
          auto greatest = least;
          comm.all_reduce(bytes_of(least), Pair::least());
          comm.all_reduce(bytes_of(greatest), Pair::greatest());
          for (std::size_t i = 0; i < count; ++i) {
            const Pair low = wanted(i, false), high = wanted(i, true);
            require(least[i].value == low.value && least[i].index == low.index, "the least");
            require(greatest[i].value == high.value && greatest[i].index == high.index,
                    "the greatest");
          }
        }
      };
      check(std::int32_t());
      check(std::int64_t());
    }));
  }
}

TEST_CASE("a NaN wins over numbers, and what has no order is refused") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    const double values[] = {1, std::numeric_limits<double>::quiet_NaN(),
                             -std::numeric_limits<double>::infinity()};
    Located<double> pair{values[comm.rank()], comm.rank()};
    comm.all_reduce(std::as_writable_bytes(std::span(&pair, 1)), pair.least());
    require(std::isnan(pair.value) && pair.index == 1, "the least");
  }));
  CHECK_THROWS_AS(Reduction::min_located(DType::c64, DType::i32), Error);
  CHECK_THROWS_AS(Reduction::max_located(DType::f32, DType::f32), Error);
  CHECK_THROWS_AS(Reduction::max_located(static_cast<DType>(99), DType::i32), Error);
}

TEST_CASE("reduce_local does here what a call does with two ranks") {
  const std::vector<float> in{1, 2, 3, 4};
  std::vector<float> inout{10, 20, 30, 40};
  reduce_local(in, inout);
  CHECK(inout == std::vector<float>{11, 22, 33, 44});
  reduce_local(inout, inout, ReduceOp::product);
  CHECK(inout[3] == 44 * 44);
  // Every second one.
  const TensorView gaps{inout.data(), 2, DType::f32, {}, 2};
  reduce_local(ConstTensorView(in.data(), 2, DType::f32), gaps, ReduceOp::max);
  CHECK(inout == std::vector<float>{121, 484, 1089, 1936});
  std::vector<Affine> second{given(1, 0)};
  const std::vector<Affine> first{given(0, 0)};
  reduce_local(std::as_bytes(std::span(first)), bytes_of(second), composed());
  CHECK(second[0] == expected(2, 0));

  const auto sentence_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  const auto says = [&](const char* wanted, const auto& call) {
    const std::string said = sentence_of(call);
    CHECK_MESSAGE(said.find(wanted) != said.npos, said);
  };
  says("'in' has 4 f32 elements, and 'inout' has 3 f32 elements",
       [&] { reduce_local(in, std::span(inout).first(3)); });
  says("a mean is of all ranks", [&] { reduce_local(in, inout, ReduceOp::mean); });
  says("4 f32 elements with a stride of -9223372036854775808 reach further than memory may", [&] {
    const auto furthest = std::numeric_limits<std::ptrdiff_t>::min();
    reduce_local(ConstTensorView(in.data(), 4, DType::f32, {}, furthest), inout);
  });
  says("overlap", [&] { reduce_local(std::span(inout).first(3), std::span(inout).last(3)); });
  says("bxor of f32 elements makes no sense", [&] { reduce_local(in, inout, ReduceOp::bxor); });
  says("copy CUDA buffers first",
       [&] { reduce_local(in, TensorView(inout.data(), 4, DType::f32, Place{0})); });
}
