#include "collectives/bench/pattern.hpp"

#include "collectives/reduce/element_types.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dlaunch::bench {

namespace {

/// Elements after which a part's content repeats; no power of two, so that no shift by a block
/// goes unseen.
constexpr std::size_t period = 61;
/// Values are below this: 2,048 / 13 ranks can be summed in f16 without rounding.
constexpr std::uint64_t values = 13;
constexpr std::size_t sampled = 64;  ///< Elements at each end of a part.
constexpr unsigned char unwritten = 0xa5;

std::uint64_t value_of(const Case& call, int source, int part, std::size_t index) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(source) * 5 +
                              static_cast<std::uint64_t>(part) * 11 + index * (index % 3 + 1);
  const bool product = operation(call.op).reduces && call.redop == ReduceOp::product;
  if (call.dtype == DType::boolean) return mixed % 2;
  if (!product) return mixed % values;
  // All but one rank give 1: products of many stay small.
  const auto turn = (index + static_cast<std::size_t>(part)) % static_cast<std::size_t>(call.ranks);
  return turn == static_cast<std::size_t>(source) ? 1 + mixed % 3 : 1;
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Integers wrap as those of the type do.
void encode(DType dtype, std::uint64_t whole, double real, std::byte* at) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, bool>) {
      put(at, static_cast<std::uint8_t>(whole));
    } else if constexpr (std::is_integral_v<T>) {
      put(at, static_cast<T>(whole));
    } else if constexpr (requires { typename T::value_type; }) {
      put(at, T(static_cast<typename T::value_type>(real)));
    } else if constexpr (sizeof(T) == 2) {
      put(at, T(static_cast<float>(real)));
    } else {
      put(at, static_cast<T>(real));
    }
  });
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Integers have none: they are compared bit by bit.
double real_part(DType dtype, const std::byte* at) {
  return with_element(dtype, [&](auto element) -> double {
    using T = decltype(element);
    if constexpr (std::is_integral_v<T>)
      return 0;
    else if constexpr (requires { typename T::value_type; })
      return get<T>(at).real();
    else if constexpr (sizeof(T) == 2)
      return static_cast<float>(get<T>(at));
    else
      return get<T>(at);
  });
}

std::uint64_t fold(const Case& call, std::uint64_t a, std::uint64_t b) {
  const bool logical = call.dtype == DType::boolean;
  switch (call.redop) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return logical ? a | b : a + b;
    case ReduceOp::product:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
    case ReduceOp::premul_sum:
    case ReduceOp::custom:
      break;  // --redop does not offer them.
  }
  return a;
}

using Table = std::vector<std::byte>;

/// One period of what `source` makes for `part`.
Table given_by(const Case& call, int source, int part) {
  const std::size_t width = size_of(call.dtype);
  Table table(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    const auto value = value_of(call, source, part, i);
    encode(call.dtype, value, static_cast<double>(value), &table[i * width]);
  }
  return table;
}

/// One period of the reduction of what all make for `part`.
Table folded(const Case& call, int part) {
  const std::size_t width = size_of(call.dtype);
  Table table(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    std::uint64_t whole = value_of(call, 0, part, i);
    for (int source = 1; source < call.ranks; ++source) {
      whole = fold(call, whole, value_of(call, source, part, i));
    }
    auto real = static_cast<double>(whole);
    if (call.redop == ReduceOp::mean) {
      real /= call.ranks;
      whole /= static_cast<std::uint64_t>(call.ranks);
    }
    encode(call.dtype, whole, real, &table[i * width]);
  }
  return table;
}

void repeat(const Table& table, std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size(); at += table.size()) {
    std::memcpy(out.data() + at, table.data(), std::min(table.size(), out.size() - at));
  }
}

/// Compares elements [from, to) of a part with the table.
std::uint64_t compare(const Case& call, const Table& table, const std::byte* part, std::size_t from,
                      std::size_t to) {
  const std::size_t width = size_of(call.dtype);
  const double allowed = operation(call.op).reduces && call.redop == ReduceOp::mean
                             ? element_type(call.dtype).off_max
                             : 0;
  std::uint64_t wrong = 0;
  for (std::size_t i = from; i < to; ++i) {
    const std::byte* got = part + i * width;
    const std::byte* wanted = &table[i % period * width];
    if (std::memcmp(got, wanted, width) == 0) continue;
    const double target = real_part(call.dtype, wanted);
    const double error = std::abs(real_part(call.dtype, got) - target);
    // Written so that a NaN is wrong.
    const bool near = allowed > 0 && error <= allowed * std::abs(target);
    wrong += near ? 0 : 1;
  }
  return wrong;
}

/// What `out` should hold: one table for each of its parts.
std::vector<Table> wanted(const Case& call) {
  std::vector<Table> parts;
  switch (call.op) {
    case Op::barrier:
    case Op::barrier_ordered:
      break;
    case Op::broadcast:
      parts.push_back(given_by(call, call.root, 0));
      break;
    case Op::reduce:
      if (call.rank == call.root) parts.push_back(folded(call, 0));
      break;
    case Op::all_reduce:
      parts.push_back(folded(call, 0));
      break;
    case Op::gather:
      if (call.rank != call.root) break;
      [[fallthrough]];
    case Op::all_gather:
      for (int source = 0; source < call.ranks; ++source) {
        parts.push_back(given_by(call, source, 0));
      }
      break;
    case Op::scatter:
      parts.push_back(given_by(call, call.root, call.rank));
      break;
    case Op::reduce_scatter:
      parts.push_back(folded(call, call.rank));
      break;
    case Op::all_to_all:
      for (int source = 0; source < call.ranks; ++source) {
        parts.push_back(given_by(call, source, call.rank));
      }
      break;
    case Op::ping_pong:
    case Op::bidirectional:
      if (call.rank < 2) parts.push_back(given_by(call, 1 - call.rank, 0));
      break;
  }
  return parts;
}

}  // namespace

std::size_t in_elements(const Case& call) {
  const std::size_t all = call.count * static_cast<std::size_t>(call.ranks);
  switch (call.op) {
    case Op::barrier:
    case Op::barrier_ordered:
    case Op::broadcast:
    case Op::all_reduce:
      return 0;
    case Op::reduce:
    case Op::all_gather:
    case Op::gather:
      return call.count;
    case Op::scatter:
      return call.rank == call.root ? all : 0;
    case Op::reduce_scatter:
    case Op::all_to_all:
      return all;
    case Op::ping_pong:
    case Op::bidirectional:
      return call.rank < 2 ? call.count : 0;
  }
  return 0;
}

std::size_t out_elements(const Case& call) {
  const std::size_t all = call.count * static_cast<std::size_t>(call.ranks);
  switch (call.op) {
    case Op::barrier:
    case Op::barrier_ordered:
      return 0;
    case Op::broadcast:
    case Op::all_reduce:
    case Op::scatter:
    case Op::reduce_scatter:
      return call.count;
    case Op::reduce:
      return call.rank == call.root ? call.count : 0;
    case Op::gather:
      return call.rank == call.root ? all : 0;
    case Op::all_gather:
    case Op::all_to_all:
      return all;
    case Op::ping_pong:
    case Op::bidirectional:
      return call.rank < 2 ? call.count : 0;
  }
  return 0;
}

bool one_buffer(Op op) { return op == Op::broadcast || op == Op::all_reduce; }

void fill(const Case& call, std::span<std::byte> in, std::span<std::byte> out) {
  if (!out.empty()) std::memset(out.data(), unwritten, out.size());
  const bool silent = call.op == Op::broadcast && call.rank != call.root;
  if (one_buffer(call.op)) {
    if (!silent) repeat(given_by(call, call.rank, 0), out);
    return;
  }
  const std::size_t part_bytes = call.count * size_of(call.dtype);
  for (std::size_t part = 0; part_bytes > 0 && (part + 1) * part_bytes <= in.size(); ++part) {
    repeat(given_by(call, call.rank, static_cast<int>(part)),
           in.subspan(part * part_bytes, part_bytes));
  }
}

std::uint64_t count_wrong(const Case& call, std::span<const std::byte> out, Depth depth) {
  std::uint64_t wrong = 0;
  const std::byte* part = out.data();
  for (const Table& table : wanted(call)) {
    if (depth == Depth::every_element || call.count <= 2 * sampled) {
      wrong += compare(call, table, part, 0, call.count);
    } else {
      wrong += compare(call, table, part, 0, sampled);
      wrong += compare(call, table, part, call.count - sampled, call.count);
    }
    part += call.count * size_of(call.dtype);
  }
  return wrong;
}

}  // namespace dlaunch::bench
