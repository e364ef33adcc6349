#include "collectives/reduce.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dlaunch {
namespace {

/// Elements folded at a time: the accumulators stay in the first-level cache.
constexpr std::size_t block = 512;

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;
template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// What T is accumulated in. Unsigned integers wrap where signed ones would be undefined, and give
/// the same bits; bool is folded as a byte of 0 or 1.
template <class T>
struct Accumulator {
  using type = T;
};
template <class T>
requires(std::is_integral_v<T>&& std::is_signed_v<T>) struct Accumulator<T> {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Accumulator<bool> {
  using type = std::uint8_t;
};
template <class T>
requires is_half<T>
struct Accumulator<T> {
  using type = float;
};

/// One element of T, from memory that need not be aligned for T.
template <class T>
T load(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, std::size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

struct Sum {
  template <class A>
  static A apply(A a, A b) {
    return static_cast<A>(a + b);
  }
};
struct Product {
  template <class A>
  static A apply(A a, A b) {
    // Two u16 would be promoted to int, whose product may overflow.
    if constexpr (std::is_integral_v<A>) return static_cast<A>(std::uint64_t{a} * b);
    return static_cast<A>(a * b);
  }
};
/// x != x is true for NaN alone: a NaN on either side wins.
struct Min {
  template <class A>
  static A apply(A a, A b) {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <class A>
  static A apply(A a, A b) {
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <class A>
  static A apply(A a, A b) {
    return static_cast<A>(a & b);
  }
};
struct Or {
  template <class A>
  static A apply(A a, A b) {
    return static_cast<A>(a | b);
  }
};
struct Xor {
  template <class A>
  static A apply(A a, A b) {
    return static_cast<A>(a ^ b);
  }
};

using Inputs = std::span<const std::byte* const>;

/// The whole fold: `enter` makes an accumulator of an element, `leave` an element of it.
template <class T, class A, class Op, class Enter, class Leave>
void fold(Inputs inputs, std::byte* out, std::size_t count, Enter enter, Leave leave) {
  std::array<A, block> sums;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t n = std::min(block, count - begin);
    const std::size_t skip = begin * sizeof(T);
    for (std::size_t i = 0; i < n; ++i) sums[i] = enter(load<T>(inputs[0] + skip, i));
    for (const std::byte* input : inputs.subspan(1)) {
      for (std::size_t i = 0; i < n; ++i) {
        sums[i] = Op::template apply<A>(sums[i], enter(load<T>(input + skip, i)));
      }
    }
    for (std::size_t i = 0; i < n; ++i) store<T>(out + skip, i, leave(sums[i]));
  }
}

template <class T, class Op>
void fold_plain(Inputs inputs, std::byte* out, std::size_t count) {
  using A = typename Accumulator<T>::type;
  fold<T, A, Op>(
      inputs, out, count, [](T x) { return static_cast<A>(x); },
      [](A x) { return static_cast<T>(x); });
}

/// Comparisons need the element's own sign.
template <class T, class Op>
void fold_ordered(Inputs inputs, std::byte* out, std::size_t count) {
  using A = std::conditional_t<is_half<T>, float, T>;
  fold<T, A, Op>(
      inputs, out, count, [](T x) { return static_cast<A>(x); },
      [](A x) { return static_cast<T>(x); });
}

template <class T>
void fold_mean(Inputs inputs, std::byte* out, std::size_t count) {
  const auto ranks = inputs.size();
  if constexpr (std::is_integral_v<T>) {
    // 64 bits hold the sum of every narrower type, so that only 64-bit elements can wrap.
    using A = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    fold<T, std::uint64_t, Sum>(
        inputs, out, count, [](T x) { return static_cast<std::uint64_t>(static_cast<A>(x)); },
        [&](std::uint64_t sum) {
          return static_cast<T>(static_cast<A>(sum) / static_cast<A>(ranks));
        });
  } else {
    using A = typename Accumulator<T>::type;
    fold<T, A, Sum>(
        inputs, out, count, [](T x) { return static_cast<A>(x); },
        [&](A sum) {
          if constexpr (is_complex<A>) {
            return static_cast<T>(sum / static_cast<typename A::value_type>(ranks));
          } else {
            return static_cast<T>(sum / static_cast<A>(ranks));
          }
        });
  }
}

template <class T>
void fold_premul(Inputs inputs, std::byte* out, std::size_t count, double factor) {
  using A = typename Accumulator<T>::type;
  const auto leave = [](A x) { return static_cast<T>(x); };
  if constexpr (is_complex<A>) {
    const auto scale = static_cast<typename A::value_type>(factor);
    fold<T, A, Sum>(
        inputs, out, count, [&](T x) { return x * scale; }, leave);
  } else {
    const auto scale = static_cast<A>(factor);
    fold<T, A, Sum>(
        inputs, out, count, [&](T x) { return static_cast<A>(x) * scale; }, leave);
  }
}

void fold_custom(const Reduction& reduction, DType dtype, Inputs inputs, std::byte* out,
                 std::size_t count) {
  const std::size_t bytes = count * size_of(dtype);
  // `out` may be a later input, so the result is accumulated apart from it.
  std::vector<std::byte> accumulated(inputs[0], inputs[0] + bytes);
  for (const std::byte* input : inputs.subspan(1)) {
    reduction.fold()(accumulated.data(), input, count, dtype);
  }
  if (bytes > 0) std::memcpy(out, accumulated.data(), bytes);
}

template <class T>
void fold_as(const Reduction& reduction, Inputs inputs, std::byte* out, std::size_t count) {
  constexpr bool is_bool = std::is_same_v<T, bool>;
  switch (reduction.op()) {
    case ReduceOp::sum:
      return fold_plain<T, std::conditional_t<is_bool, Or, Sum>>(inputs, out, count);
    case ReduceOp::product:
      return fold_plain<T, std::conditional_t<is_bool, And, Product>>(inputs, out, count);
    case ReduceOp::min:
      if constexpr (!is_complex<T>) fold_ordered<T, Min>(inputs, out, count);
      return;
    case ReduceOp::max:
      if constexpr (!is_complex<T>) fold_ordered<T, Max>(inputs, out, count);
      return;
    case ReduceOp::mean:
      if constexpr (!is_bool) fold_mean<T>(inputs, out, count);
      return;
    case ReduceOp::band:
      if constexpr (std::is_integral_v<T>) fold_plain<T, And>(inputs, out, count);
      return;
    case ReduceOp::bor:
      if constexpr (std::is_integral_v<T>) fold_plain<T, Or>(inputs, out, count);
      return;
    case ReduceOp::bxor:
      if constexpr (std::is_integral_v<T>) fold_plain<T, Xor>(inputs, out, count);
      return;
    case ReduceOp::premul_sum:
      if constexpr (!std::is_integral_v<T>) {
        fold_premul<T>(inputs, out, count, reduction.factor());
      }
      return;
    case ReduceOp::custom:
      return fold_custom(reduction, dtype_of<T>::value, inputs, out, count);
  }
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
      return true;
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::boolean:
    case DType::c64:
    case DType::c128:
      return false;
  }
  return false;
}

}  // namespace

Folder::Folder(const Reduction& reduction, DType dtype, bool truncate_mean)
    : reduction_(reduction), dtype_(dtype) {
  if (const auto reason = objection(reduction, dtype, truncate_mean)) {
    throw Error(Errc::misuse, *reason);
  }
}

std::optional<std::string> Folder::objection(const Reduction& reduction, DType dtype,
                                             bool truncate_mean) {
  const std::string pair =
      std::string(to_string(reduction.op())) + " of " + to_string(dtype) + " elements";
  const bool complex = dtype == DType::c64 || dtype == DType::c128;
  const bool boolean = dtype == DType::boolean;
  switch (reduction.op()) {
    case ReduceOp::sum:
    case ReduceOp::product:
    case ReduceOp::custom:
      return std::nullopt;
    case ReduceOp::min:
    case ReduceOp::max:
      if (complex) return pair + " makes no sense: complex numbers have no order";
      return std::nullopt;
    case ReduceOp::mean:
      if (boolean) return pair + " makes no sense: cast first to a floating-point type";
      if (is_integer(dtype) && !truncate_mean) {
        return pair + " would drop the fraction: cast first to a floating-point type, or set " +
               "Options::truncate_mean";
      }
      return std::nullopt;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      if (is_integer(dtype) || boolean) return std::nullopt;
      return pair + " makes no sense: bitwise operations are for integers and bool";
    case ReduceOp::premul_sum:
      if (is_integer(dtype) || boolean) {
        return pair + " makes no sense: cast first to a floating-point type";
      }
      return std::nullopt;
  }
  return "an unknown reduction";
}

void Folder::operator()(std::span<const std::byte* const> inputs, std::byte* out,
                        std::size_t count) const {
  switch (dtype_) {
    case DType::u8:
      return fold_as<std::uint8_t>(reduction_, inputs, out, count);
    case DType::i8:
      return fold_as<std::int8_t>(reduction_, inputs, out, count);
    case DType::i16:
      return fold_as<std::int16_t>(reduction_, inputs, out, count);
    case DType::u16:
      return fold_as<std::uint16_t>(reduction_, inputs, out, count);
    case DType::i32:
      return fold_as<std::int32_t>(reduction_, inputs, out, count);
    case DType::u32:
      return fold_as<std::uint32_t>(reduction_, inputs, out, count);
    case DType::i64:
      return fold_as<std::int64_t>(reduction_, inputs, out, count);
    case DType::u64:
      return fold_as<std::uint64_t>(reduction_, inputs, out, count);
    case DType::f16:
      return fold_as<float16>(reduction_, inputs, out, count);
    case DType::bf16:
      return fold_as<bfloat16>(reduction_, inputs, out, count);
    case DType::f32:
      return fold_as<float>(reduction_, inputs, out, count);
    case DType::f64:
      return fold_as<double>(reduction_, inputs, out, count);
    case DType::boolean:
      return fold_as<bool>(reduction_, inputs, out, count);
    case DType::c64:
      return fold_as<std::complex<float>>(reduction_, inputs, out, count);
    case DType::c128:
      return fold_as<std::complex<double>>(reduction_, inputs, out, count);
  }
}

}  // namespace dlaunch
