// Every operation, element type, count and number of ranks against a reference computed here, in
// plain loops. The default run takes a part of the grid; DLAUNCH_TEST_FULL=1 takes all of it.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>

#include <doctest/doctest.h>

using namespace dlaunch;
using testing::run_ranks;

namespace {

bool full_grid() { return std::getenv("DLAUNCH_TEST_FULL") != nullptr; }

std::vector<int> sizes() {
  return full_grid() ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9} : std::vector{1, 2, 3, 5, 8};
}

std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t count = 0; count <= 33; count += full_grid() || count < 3 ? 1 : 10) {
    all.push_back(count);
  }
  all.push_back(33);
  return all;
}

const std::vector<ReduceOp> plain_ops = {ReduceOp::sum, ReduceOp::product, ReduceOp::min,
                                         ReduceOp::max, ReduceOp::mean,    ReduceOp::band,
                                         ReduceOp::bor, ReduceOp::bxor};

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;
template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// Small whole numbers that every type holds, different for ranks and places.
template <class T>
T value(int rank, std::size_t i) {
  const int number = static_cast<int>((static_cast<std::size_t>(rank) * 3 + i) % 5 + 1);
  if constexpr (std::is_same_v<T, bool>) return number % 2 == 0;
  if constexpr (is_half<T>) return T(static_cast<float>(number));
  if constexpr (is_complex<T>) {
    using Real = typename T::value_type;
    return T(static_cast<Real>(number), static_cast<Real>(1 - number % 3));
  }
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<T>(number);
  }
}

/// In what the reference is computed; wide enough that nothing rounds before the end.
template <class T>
using Wide = std::conditional_t<
    is_half<T>, float,
    std::conditional_t<is_complex<T> || std::is_floating_point_v<T>, T, std::int64_t>>;

template <class T>
Wide<T> combine(ReduceOp op, Wide<T> a, Wide<T> b) {
  if constexpr (std::is_same_v<T, bool>) {
    if (op == ReduceOp::sum) return a | b;
  }
  if (op == ReduceOp::sum || op == ReduceOp::mean) return a + b;
  if (op == ReduceOp::product) return a * b;
  if constexpr (!is_complex<T>) {
    if (op == ReduceOp::min) return std::min(a, b);
    if (op == ReduceOp::max) return std::max(a, b);
  }
  if constexpr (std::is_integral_v<Wide<T>>) {
    if (op == ReduceOp::band) return a & b;
    if (op == ReduceOp::bor) return a | b;
    if (op == ReduceOp::bxor) return a ^ b;
  }
  return a;
}

template <class T>
T expected(ReduceOp op, int ranks, std::size_t i) {
  Wide<T> sum = static_cast<Wide<T>>(value<T>(0, i));
  for (int rank = 1; rank < ranks; ++rank) {
    sum = combine<T>(op, sum, static_cast<Wide<T>>(value<T>(rank, i)));
  }
  if (op == ReduceOp::mean) {
    if constexpr (is_complex<T>) {
      sum /= static_cast<typename T::value_type>(ranks);
    } else {
      sum /= static_cast<Wide<T>>(ranks);
    }
  }
  return static_cast<T>(sum);
}

template <class T>
bool makes_sense(ReduceOp op) {
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (ordered) return !is_complex<T>;
  if (bitwise) return std::is_integral_v<T>;
  if (op == ReduceOp::mean) return !std::is_integral_v<T>;
  return true;
}

/// std::vector<bool> is no container of bool.
template <class T>
struct Buffer {
  explicit Buffer(std::size_t n) : data(new T[n == 0 ? 1 : n]()), count(n) {}
  TensorView view() { return {data.get(), count, dtype_of<T>::value}; }
  TensorView first(std::size_t n) { return {data.get(), n, dtype_of<T>::value}; }
  T& operator[](std::size_t i) { return data[i]; }
  void fill(int rank, std::size_t offset = 0) {
    for (std::size_t i = 0; i < count; ++i) data[i] = value<T>(rank, i + offset);
  }
  std::unique_ptr<T[]> data;
  std::size_t count;
};

template <class T>
void require_equal(Buffer<T>& got, std::size_t i, T wanted, const char* what) {
  if (std::memcmp(&got[i], &wanted, sizeof(T)) == 0) return;
  throw std::runtime_error(std::string(what) + " of " + to_string(dtype_of<T>::value) +
                           " differs at " + std::to_string(i));
}

template <class T>
void check_reductions(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), me = comm.rank();
  for (const ReduceOp op : plain_ops) {
    if (!makes_sense<T>(op)) continue;
    Buffer<T> x(count);
    x.fill(me);
    comm.all_reduce(x.view(), op);
    for (std::size_t i = 0; i < count; ++i) {
      require_equal(x, i, expected<T>(op, ranks, i), to_string(op));
    }
    const int root = static_cast<int>(count) % ranks;
    Buffer<T> in(count), out(count);
    in.fill(me);
    comm.reduce(in.view(), out.view(), root, op);
    for (std::size_t i = 0; i < count; ++i) {
      require_equal(in, i, value<T>(me, i), "the input of reduce");
      require_equal(out, i, me == root ? expected<T>(op, ranks, i) : T(), "reduce");
    }
    Buffer<T> all(count * static_cast<std::size_t>(ranks));
    all.fill(me);
    comm.reduce_scatter(all.view(), out.view(), op);
    const std::size_t offset = count * static_cast<std::size_t>(me);
    for (std::size_t i = 0; i < count; ++i) {
      require_equal(out, i, expected<T>(op, ranks, i + offset), "reduce_scatter");
    }
  }
}

template <class T>
void check_movement(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), me = comm.rank();
  const auto n = static_cast<std::size_t>(ranks);
  const int root = static_cast<int>(count + 1) % ranks;
  Buffer<T> x(count), all(count * n), back(count * n);
  x.fill(me);
  comm.broadcast(x.view(), root);
  for (std::size_t i = 0; i < count; ++i) require_equal(x, i, value<T>(root, i), "broadcast");

  x.fill(me);
  comm.all_gather(x.view(), all.view());
  for (std::size_t i = 0; i < all.count; ++i) {
    require_equal(all, i, value<T>(static_cast<int>(i / count), i % count), "all_gather");
  }
  comm.gather(x.view(), back.view(), root);
  for (std::size_t i = 0; me == root && i < back.count; ++i) {
    require_equal(back, i, value<T>(static_cast<int>(i / count), i % count), "gather");
  }
  Buffer<T> part(count);
  all.fill(root);
  comm.scatter(all.view(), part.view(), root);
  for (std::size_t i = 0; i < count; ++i) {
    require_equal(part, i, value<T>(root, i + count * static_cast<std::size_t>(me)), "scatter");
  }
  all.fill(me);
  comm.all_to_all(all.view(), back.view());
  for (std::size_t i = 0; i < back.count; ++i) {
    require_equal(
        back, i,
        value<T>(static_cast<int>(i / count), i % count + count * static_cast<std::size_t>(me)),
        "all_to_all");
  }
}

template <class... Ts>
void check_types(Communicator& comm, std::size_t count) {
  (check_reductions<Ts>(comm, count), ...);
  (check_movement<Ts>(comm, count), ...);
}

}  // namespace

TEST_CASE("every call with every type, count and number of ranks") {
  for (const int size : sizes()) {
    CAPTURE(size);
    const auto outcomes = run_ranks(size, [](const World& world) {
      Communicator comm(world);
      for (const std::size_t count : counts()) {
        check_types<std::uint8_t, std::int8_t, std::int16_t, std::uint16_t, std::int32_t,
                    std::uint32_t, std::int64_t, std::uint64_t, float16, bfloat16, float, double,
                    bool, std::complex<float>, std::complex<double>>(comm, count);
      }
      comm.barrier();
    });
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

TEST_CASE("parts of different sizes") {
  for (const int size : sizes()) {
    CAPTURE(size);
    const auto outcomes = run_ranks(size, [](const World& world) {
      Communicator comm(world);
      const auto n = static_cast<std::size_t>(comm.size());
      const auto me = static_cast<std::size_t>(comm.rank());
      std::vector<std::size_t> counts;
      std::vector<int> gathered;
      for (std::size_t rank = 0; rank < n; ++rank) {
        counts.push_back(rank % 4);
        for (std::size_t i = 0; i < counts[rank]; ++i) {
          gathered.push_back(static_cast<int>(100 * rank + i));
        }
      }
      std::vector<int> mine;
      for (std::size_t i = 0; i < counts[me]; ++i) mine.push_back(static_cast<int>(100 * me + i));
      const auto require = [](bool holds, const char* what) {
        if (!holds) throw std::runtime_error(what);
      };

      std::vector<int> all(gathered.size());
      comm.all_gather_v(mine, all, counts);
      require(all == gathered, "all_gather_v");
      const int root = comm.size() - 1;
      std::vector<int> at_root(gathered.size());
      comm.gather_v(mine, at_root, counts, root);
      require(comm.rank() != root || at_root == gathered, "gather_v");
      std::vector<int> part(counts[me]);
      comm.scatter_v(all, part, counts, root);
      require(part == mine, "scatter_v");
      comm.reduce_scatter_v(all, part, counts);
      for (std::size_t i = 0; i < part.size(); ++i) {
        require(part[i] == mine[i] * comm.size(), "reduce_scatter_v");
      }
      // Rank i sends (i + j) % 3 elements to rank j.
      std::vector<std::size_t> out_counts, in_counts;
      std::vector<int> sent, wanted;
      for (std::size_t j = 0; j < n; ++j) {
        out_counts.push_back((me + j) % 3);
        for (std::size_t k = 0; k < out_counts[j]; ++k) {
          sent.push_back(static_cast<int>(10000 * me + 100 * j + k));
          wanted.push_back(static_cast<int>(10000 * j + 100 * me + k));
        }
      }
      std::vector<int> got(wanted.size());
      comm.all_to_all_v(sent, out_counts, got, out_counts);
      require(got == wanted, "all_to_all_v");
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
      // Folded in rank order, as a loop on one rank does it.
      std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
      comm.all_gather(x, all);
      std::vector<float> reference(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
      for (std::size_t i = count; i < all.size(); ++i) reference[i % count] += all[i];
      comm.all_reduce(x);
      const auto same = [&](const std::vector<float>& got) {
        return std::memcmp(got.data(), reference.data(), count * sizeof(float)) == 0;
      };
      if (!same(x)) throw std::runtime_error("all_reduce has other bits");
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
    });
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}
