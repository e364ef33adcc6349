#include "collectives/bench/pattern.hpp"

#include "collectives/reduce/element_types.hpp"
#include "collectives/reduce/reduce_ops.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dlaunch::bench {

namespace {

/// The period of a part's content in elements; no power of two, so that a shift by a block shows.
constexpr std::size_t period = 61;
/// Values are below this, so that 2,048 / 13 ranks can be summed in f16 without rounding.
constexpr std::uint64_t values = 13;
constexpr std::size_t sampled = 64;  ///< Elements at each end of a part.
constexpr unsigned char unwritten = 0xa5;
constexpr int pair_ranks = 2;

std::uint64_t value_of(const Case& call, int source, int part, std::size_t index) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(source) * 5 +
                              static_cast<std::uint64_t>(part) * 11 + index * (index % 3 + 1);
  const bool product = operation(call.op).reduces() && call.redop == ReduceOp::product;
  if (call.dtype == DType::boolean) return mixed % 2;
  if (!product) return mixed % values;
  // All ranks but one give 1, so that products of many stay small.
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
    } else if constexpr (std::is_class_v<T>) {
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
    else if constexpr (std::is_class_v<T>)
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
    case ReduceOp::land:
      return a != 0 && b != 0;
    case ReduceOp::lor:
      return a != 0 || b != 0;
    case ReduceOp::lxor:
      return (a != 0) != (b != 0);
    case ReduceOp::premul_sum:
    case ReduceOp::custom:
      break;  // --redop does not offer them.
  }
  return a;
}

using Table = std::vector<std::byte>;

/// One period of the values that `source` makes for `part`.
Table given_by(const Case& call, int source, int part) {
  const std::size_t width = size_of(call.dtype);
  Table table(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    const auto value = value_of(call, source, part, i);
    encode(call.dtype, value, static_cast<double>(value), &table[i * width]);
  }
  return table;
}

/// The ranks, from the first, from whose data this rank's result is reduced.
int ranks_reduced(const Case& call) {
  switch (operation(call.op).reduced) {
    case Reduced::none:
      return 0;
    case Reduced::all:
      return call.ranks;
    case Reduced::up_to_own:
      return call.rank + 1;
    case Reduced::before_own:
      return call.rank;
  }
  return 0;
}

/// One period of the reduction of the first `ranks` ranks' values for `part`.
Table folded(const Case& call, int part, int ranks) {
  const std::size_t width = size_of(call.dtype);
  Table table(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    std::uint64_t whole = value_of(call, 0, part, i);
    if (traits_of(call.redop).is_truth) whole = whole != 0;
    for (int source = 1; source < ranks; ++source) {
      whole = fold(call, whole, value_of(call, source, part, i));
    }
    auto real = static_cast<double>(whole);
    if (call.redop == ReduceOp::mean) {
      real /= ranks;
      whole /= static_cast<std::uint64_t>(ranks);
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
  const double allowed = operation(call.op).reduces() && call.redop == ReduceOp::mean
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

/// The expected `out`: one table for each part that is written.
std::vector<Table> wanted(const Case& call) {
  const Operation& entry = operation(call.op);
  std::vector<Table> parts;
  if (out_elements(call) == 0) return parts;
  const int part = entry.in == Extent::part_for_each ? call.rank : 0;
  if (entry.reduces()) {
    const int ranks = ranks_reduced(call);
    if (ranks > 0) parts.push_back(folded(call, part, ranks));
  } else if (entry.ring()) {
    // The left neighbour's values for its right, and the right neighbour's for its left.
    parts.push_back(given_by(call, (call.rank + call.ranks - 1) % call.ranks, 1));
    parts.push_back(given_by(call, (call.rank + 1) % call.ranks, 0));
  } else if (entry.partners == Partners::random) {
    parts.push_back(given_by(call, partner_of(call.rank, call.ranks, call.root).value(), part));
  } else if (entry.out == Extent::part_for_each) {
    for (int source = 0; source < call.ranks; ++source) {
      parts.push_back(given_by(call, source, part));
    }
  } else {
    parts.push_back(given_by(call, entry.pair() ? 1 - call.rank : call.root, part));
  }
  return parts;
}

/// Elements of a buffer; `alone` says that the root has it for itself.
std::size_t elements(const Case& call, Extent extent, bool alone) {
  const Operation& entry = operation(call.op);
  const bool is_away =
      (entry.pair() && call.rank >= pair_ranks) ||
      (entry.partners == Partners::random && !partner_of(call.rank, call.ranks, call.root));
  if (is_away || (alone && call.rank != call.root)) return 0;
  switch (extent) {
    case Extent::none:
      return 0;
    case Extent::one_part:
      return call.count;
    case Extent::part_for_each:
      return call.count * static_cast<std::size_t>(call.ranks);
    case Extent::two_parts:
      return 2 * call.count;
  }
  return 0;
}

}  // namespace

int pairings(int ranks) { return std::max(1, ranks % 2 == 0 ? ranks - 1 : ranks); }

std::optional<int> partner_of(int rank, int ranks, int pairing) {
  const int round = pairings(ranks);
  const bool is_even = ranks % 2 == 0;
  // With an even number the last rank stands in the middle of the circle. On the circle the ranks
  // whose sum is the pairing's number are partners, and one is its own.
  const auto opposite = [&](int other) { return (pairing % round + round - other) % round; };
  if (is_even && rank == ranks - 1) {
    for (int other = 0; other < round; ++other) {
      if (opposite(other) == other) return other;
    }
    return std::nullopt;
  }
  const int other = opposite(rank);
  if (other != rank) return other;
  if (is_even) return ranks - 1;
  return std::nullopt;
}

std::size_t in_elements(const Case& call) {
  const Operation& entry = operation(call.op);
  return elements(call, entry.in, entry.alone == Alone::in);
}

std::size_t out_elements(const Case& call) {
  const Operation& entry = operation(call.op);
  return elements(call, entry.out, entry.alone == Alone::out);
}

void fill(const Case& call, std::span<std::byte> in, std::span<std::byte> out) {
  if (!out.empty()) std::memset(out.data(), unwritten, out.size());
  const Operation& entry = operation(call.op);
  const bool silent = entry.rooted() && call.rank != call.root;
  if (entry.one_buffer()) {
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
