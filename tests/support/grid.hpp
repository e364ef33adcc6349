#pragma once

#include "tests/support/expect.hpp"
#include "tests/support/scalar_fold.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// The grid: every operation, element type, count and reduction against a reference computed here,
/// in plain loops. For ranks that are threads, and for those that are processes.
namespace dlaunch::testing::grid {

inline std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t count = 0; count <= 33; count += is_full() || count < 3 ? 1 : 10) {
    all.push_back(count);
  }
  if (all.back() != 33) all.push_back(33);
  return all;
}

inline const std::vector<ReduceOp> plain_ops = {
    ReduceOp::sum, ReduceOp::product, ReduceOp::min,  ReduceOp::max, ReduceOp::mean, ReduceOp::band,
    ReduceOp::bor, ReduceOp::bxor,    ReduceOp::land, ReduceOp::lor, ReduceOp::lxor};

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
    if (op == ReduceOp::land) return a != 0 && b != 0;
    if (op == ReduceOp::lor) return a != 0 || b != 0;
    if (op == ReduceOp::lxor) return (a != 0) != (b != 0);
  }
  return a;
}

template <class T>
T expected(ReduceOp op, int ranks, std::size_t i) {
  Wide<T> sum = static_cast<Wide<T>>(value<T>(0, i));
  if (is_logical(op)) sum = static_cast<Wide<T>>(sum != Wide<T>());
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
  if (bitwise || is_logical(op)) return std::is_integral_v<T>;
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

/// One call, as a failure names it: "all_reduce by sum of 7 f32 on rank 2 of 3 is wrong at 5".
template <class T>
class Check {
 public:
  Check(const Communicator& comm, std::size_t count, const char* op, std::string how = "")
      : what_(op + std::move(how) + " of " + std::to_string(count) + " " +
              to_string(dtype_of<T>::value) + " on rank " + std::to_string(comm.rank()) + " of " +
              std::to_string(comm.size())) {}

  void equal(Buffer<T>& got, std::size_t i, T wanted) const {
    if (std::memcmp(&got[i], &wanted, sizeof(T)) == 0) return;
    throw std::runtime_error(what_ + " is wrong at " + std::to_string(i));
  }

 private:
  std::string what_;
};

template <class T>
void check_reductions(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), me = comm.rank();
  const auto n = static_cast<std::size_t>(ranks);
  for (const ReduceOp op : plain_ops) {
    if (!makes_sense<T>(op)) continue;
    const std::string by = std::string(" by ") + to_string(op);
    Buffer<T> x(count);
    x.fill(me);
    comm.all_reduce(x.view(), op);
    const Check<T> all_reduce(comm, count, "all_reduce", by);
    for (std::size_t i = 0; i < count; ++i) all_reduce.equal(x, i, expected<T>(op, ranks, i));

    const int root = static_cast<int>(count) % ranks;
    Buffer<T> in(count), out(count);
    in.fill(me);
    // Every second rank's result takes the place of what it reads.
    comm.all_reduce_into(in.view(), me % 2 == 0 ? out.view() : in.view(), op);
    const Check<T> apart(comm, count, "all_reduce_into", by);
    for (std::size_t i = 0; i < count; ++i) {
      apart.equal(me % 2 == 0 ? out : in, i, expected<T>(op, ranks, i));
      if (me % 2 == 0) apart.equal(in, i, value<T>(me, i));
    }
    in.fill(me);
    out = Buffer<T>(count);
    comm.reduce(in.view(), out.view(), root, op);
    const Check<T> reduce(comm, count, "reduce", by), input(comm, count, "the input of reduce", by);
    for (std::size_t i = 0; i < count; ++i) {
      input.equal(in, i, value<T>(me, i));
      reduce.equal(out, i, me == root ? expected<T>(op, ranks, i) : T());
    }
    comm.reduce(in.view(), in.view(), root, op);
    const Check<T> in_place(comm, count, "reduce in place", by);
    for (std::size_t i = 0; i < count; ++i) {
      in_place.equal(in, i, me == root ? expected<T>(op, ranks, i) : value<T>(me, i));
    }

    Buffer<T> prefix(count), before(count);
    in.fill(me);
    comm.scan(in.view(), prefix.view(), op);
    comm.exscan(in.view(), before.view(), op);
    const Check<T> scan(comm, count, "scan", by), exscan(comm, count, "exscan", by);
    for (std::size_t i = 0; i < count; ++i) {
      scan.equal(prefix, i, expected<T>(op, me + 1, i));
      exscan.equal(before, i, me > 0 ? expected<T>(op, me, i) : T());
    }
    comm.scan(in.view(), in.view(), op);
    const Check<T> scan_in_place(comm, count, "scan in place", by);
    for (std::size_t i = 0; i < count; ++i) scan_in_place.equal(in, i, prefix[i]);

    Buffer<T> all(count * n);
    all.fill(me);
    comm.reduce_scatter(all.view(), out.view(), op);
    const std::size_t offset = count * static_cast<std::size_t>(me);
    const Check<T> reduce_scatter(comm, count, "reduce_scatter", by);
    for (std::size_t i = 0; i < count; ++i) {
      reduce_scatter.equal(out, i, expected<T>(op, ranks, i + offset));
    }
  }
}

template <class T>
void check_movement(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), me = comm.rank();
  const auto n = static_cast<std::size_t>(ranks), mine = count * static_cast<std::size_t>(me);
  const int root = static_cast<int>(count + 1) % ranks;
  const auto from = [count](std::size_t i) { return static_cast<int>(i / count); };
  Buffer<T> x(count), all(count * n), back(count * n);
  x.fill(me);
  comm.broadcast(x.view(), root);
  const Check<T> broadcast(comm, count, "broadcast");
  for (std::size_t i = 0; i < count; ++i) broadcast.equal(x, i, value<T>(root, i));

  x.fill(me);
  comm.all_gather(x.view(), all.view());
  const Check<T> all_gather(comm, count, "all_gather");
  for (std::size_t i = 0; i < all.count; ++i) {
    all_gather.equal(all, i, value<T>(from(i), i % count));
  }
  comm.gather(x.view(), back.view(), root);
  const Check<T> gather(comm, count, "gather");
  for (std::size_t i = 0; me == root && i < back.count; ++i) {
    gather.equal(back, i, value<T>(from(i), i % count));
  }
  Buffer<T> part(count);
  all.fill(root);
  comm.scatter(all.view(), part.view(), root);
  const Check<T> scatter(comm, count, "scatter");
  for (std::size_t i = 0; i < count; ++i) scatter.equal(part, i, value<T>(root, i + mine));

  all.fill(me);
  comm.all_to_all(all.view(), back.view());
  const Check<T> all_to_all(comm, count, "all_to_all");
  for (std::size_t i = 0; i < back.count; ++i) {
    all_to_all.equal(back, i, value<T>(from(i), i % count + mine));
  }
}

/// Rank r gives, or gets, (r + count) % 4 elements; to rank j of an all_to_all (r + j + count) % 3.
template <class T>
void check_parts(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), me = comm.rank();
  const auto n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(me);
  const int root = static_cast<int>(count + 2) % ranks;
  std::vector<std::size_t> counts, begins{0};
  for (std::size_t rank = 0; rank < n; ++rank) {
    counts.push_back((rank + count) % 4);
    begins.push_back(begins.back() + counts.back());
  }
  const std::size_t own = counts[r], total = begins.back();
  Buffer<T> mine(own), all(total), back(total), part(own);
  const auto each = [&](Buffer<T>& got, const Check<T>& check) {
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < counts[rank]; ++i) {
        check.equal(got, begins[rank] + i, value<T>(static_cast<int>(rank), i));
      }
    }
  };
  mine.fill(me);
  comm.all_gather_v(mine.view(), all.view(), counts);
  each(all, Check<T>(comm, count, "all_gather_v"));
  comm.gather_v(mine.view(), back.view(), counts, root);
  if (me == root) each(back, Check<T>(comm, count, "gather_v"));
  comm.scatter_v(all.view(), part.view(), counts, root);
  const Check<T> scatter(comm, count, "scatter_v");
  for (std::size_t i = 0; i < own; ++i) scatter.equal(part, i, value<T>(me, i));
  all.fill(me);
  comm.reduce_scatter_v(all.view(), part.view(), counts);
  const Check<T> reduce_scatter(comm, count, "reduce_scatter_v");
  for (std::size_t i = 0; i < own; ++i) {
    reduce_scatter.equal(part, i, expected<T>(ReduceOp::sum, ranks, begins[r] + i));
  }

  std::vector<std::size_t> between, sent{0};
  for (std::size_t rank = 0; rank < n; ++rank) {
    between.push_back((r + rank + count) % 3);
    sent.push_back(sent.back() + between.back());
  }
  Buffer<T> out(sent.back()), got(sent.back());
  for (std::size_t rank = 0; rank < n; ++rank) {
    for (std::size_t i = 0; i < between[rank]; ++i)
      out[sent[rank] + i] = value<T>(me, i + 7 * rank);
  }
  comm.all_to_all_v(out.view(), between, got.view(), between);
  const Check<T> all_to_all(comm, count, "all_to_all_v");
  for (std::size_t rank = 0; rank < n; ++rank) {
    for (std::size_t i = 0; i < between[rank]; ++i) {
      all_to_all.equal(got, sent[rank] + i, value<T>(static_cast<int>(rank), i + 7 * r));
    }
  }
}

/// Rank r gives, or gets, (r + count) % 4 elements in a view of its own; every second one has gaps.
template <class T>
void check_lists(Communicator& comm, std::size_t count) {
  const int ranks = comm.size(), me = comm.rank();
  const auto n = static_cast<std::size_t>(ranks), r = static_cast<std::size_t>(me);
  const int root = static_cast<int>(count + 1) % ranks;
  const auto step = [](std::size_t rank) { return 1 + rank % 2; };
  std::vector<std::size_t> counts;
  std::vector<Buffer<T>> kept;
  std::vector<TensorView> views;
  for (std::size_t rank = 0; rank < n; ++rank) {
    counts.push_back((rank + count) % 4);
    Buffer<T>& buffer = kept.emplace_back(counts.back() * step(rank));
    views.emplace_back(buffer.data.get(), counts.back(), dtype_of<T>::value, Place{},
                       static_cast<std::ptrdiff_t>(step(rank)));
  }
  const std::vector<ConstTensorView> read(views.begin(), views.end());
  // What rank `rank` is to have at `i` of its view.
  const auto each = [&](const char* call, const auto& wanted) {
    const Check<T> check(comm, count, call);
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < counts[rank]; ++i) {
        check.equal(kept[rank], i * step(rank), wanted(static_cast<int>(rank), i));
      }
    }
  };
  const auto fill = [&](const auto& given) {
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < counts[rank]; ++i) kept[rank][i * step(rank)] = given(rank, i);
    }
  };
  const auto nothing = [](std::size_t, std::size_t) { return T(); };
  const auto own = [](int rank, std::size_t i) { return value<T>(rank, i); };
  Buffer<T> mine(counts[r]), part(counts[r]);
  mine.fill(me);
  comm.all_gather_list(mine.view(), views);
  each("all_gather_list", own);
  fill(nothing);
  comm.start_all_gather_list(mine.view(), views).wait();
  each("start_all_gather_list", own);
  fill(nothing);
  comm.gather_list(mine.view(), me == root ? std::span(views) : std::span<TensorView>(), root);
  if (me == root) each("gather_list", own);

  fill([&](std::size_t rank, std::size_t i) { return value<T>(root, i + 5 * rank); });
  comm.scatter_list(me == root ? std::span(read) : std::span<const ConstTensorView>(), part.view(),
                    root);
  const Check<T> scatter(comm, count, "scatter_list");
  for (std::size_t i = 0; i < part.count; ++i) scatter.equal(part, i, value<T>(root, i + 5 * r));
  fill([&](std::size_t rank, std::size_t i) { return value<T>(me, i + 5 * rank); });
  comm.reduce_scatter_list(read, part.view());
  const Check<T> reduce_scatter(comm, count, "reduce_scatter_list");
  for (std::size_t i = 0; i < part.count; ++i) {
    reduce_scatter.equal(part, i, expected<T>(ReduceOp::sum, ranks, i + 5 * r));
  }
}

/// Rank i sends (i + j + count) % 4 elements to rank j, from views of which every second has gaps.
template <class T>
void check_exchange_of_lists(Communicator& comm, std::size_t count) {
  const auto n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  std::vector<Buffer<T>> given, got;
  std::vector<ConstTensorView> in;
  std::vector<TensorView> out;
  const auto step = [](std::size_t rank) { return 1 + rank % 2; };
  for (std::size_t rank = 0; rank < n; ++rank) {
    const std::size_t size = (me + rank + count) % 4;
    Buffer<T>& sent = given.emplace_back(size * step(rank));
    for (std::size_t i = 0; i < size; ++i) {
      sent[i * step(rank)] = value<T>(comm.rank(), i + 5 * rank);
    }
    const auto gap = static_cast<std::ptrdiff_t>(step(rank));
    in.emplace_back(sent.data.get(), size, dtype_of<T>::value, Place{}, gap);
    out.emplace_back(got.emplace_back(size * step(rank)).data.get(), size, dtype_of<T>::value,
                     Place{}, gap);
  }
  for (const bool is_started : {false, true}) {
    is_started ? comm.start_all_to_all_list(in, out).wait() : comm.all_to_all_list(in, out);
    const Check<T> check(comm, count, "all_to_all_list");
    for (std::size_t rank = 0; rank < n; ++rank) {
      for (std::size_t i = 0; i < out[rank].count; ++i) {
        check.equal(got[rank], i * step(rank), value<T>(static_cast<int>(rank), i + 5 * me));
        got[rank][i * step(rank)] = T();
      }
    }
  }
}

template <class... Ts>
void check_types(Communicator& comm, std::size_t count) {
  (check_reductions<Ts>(comm, count), ...);
  (check_movement<Ts>(comm, count), ...);
  (check_parts<Ts>(comm, count), ...);
  (check_lists<Ts>(comm, count), ...);
  (check_exchange_of_lists<Ts>(comm, count), ...);
}

/// Every call with every type, of so many elements for each rank, against plain loops. All ranks
/// call it. Throws what the calls throw, and with the first call whose result is wrong.
inline void check_all_types(Communicator& comm, std::size_t count) {
  check_types<std::uint8_t, std::int8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
              std::int64_t, std::uint64_t, float16, bfloat16, float, double, bool,
              std::complex<float>, std::complex<double>>(comm, count);
}

}  // namespace dlaunch::testing::grid
