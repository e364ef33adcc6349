#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

/// A reduction by its definition: one element after the other, in plain scalars.
namespace dlaunch::testing {

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;
template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr bool is_whole = std::is_integral_v<T> && !std::is_same_v<T, bool>;

/// An element that is not 0 is 1.
constexpr bool is_logical(ReduceOp op) {
  return op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
}

template <class T>
constexpr bool makes_sense(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
      return true;
    case ReduceOp::min:
    case ReduceOp::max:
      return !is_complex<T>;
    case ReduceOp::mean:
      return !std::is_same_v<T, bool>;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::lxor:
      return std::is_integral_v<T>;
    case ReduceOp::premul_sum:
      return !std::is_integral_v<T>;
    case ReduceOp::custom:
      return false;
  }
  return false;
}

/// In what T is accumulated: halves in f32, integers in 64 bits, which wrap as narrower ones do.
template <class T>
using Wide = std::conditional_t<
    is_half<T>, float,
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>, T>>;

template <class T>
Wide<T> combine(ReduceOp op, Wide<T> a, Wide<T> b) {
  if constexpr (std::is_same_v<T, bool>) {
    if (op == ReduceOp::sum) return a | b;
    if (op == ReduceOp::product) return a & b;
  }
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::mean:
        return static_cast<Wide<T>>(x + y);
      case ReduceOp::product:
        return static_cast<Wide<T>>(x * y);
      case ReduceOp::band:
        return static_cast<Wide<T>>(x & y);
      case ReduceOp::bor:
        return static_cast<Wide<T>>(x | y);
      case ReduceOp::bxor:
        return static_cast<Wide<T>>(x ^ y);
      case ReduceOp::land:
        return x != 0 && y != 0;
      case ReduceOp::lor:
        return x != 0 || y != 0;
      case ReduceOp::lxor:
        return (x != 0) != (y != 0);
      default:
        break;
    }
  } else {
    if (op == ReduceOp::product) return a * b;
    if (op == ReduceOp::sum || op == ReduceOp::mean || op == ReduceOp::premul_sum) return a + b;
  }
  if constexpr (!is_complex<T>) {
    if (op == ReduceOp::min) return a < b || a != a ? a : b;
    if (op == ReduceOp::max) return a > b || a != a ? a : b;
  }
  return a;
}

/// The reduction of one element, whose values on the ranks are `values`.
template <class T>
T scalar_fold(const Reduction& reduction, const std::vector<T>& values) {
  using W = Wide<T>;
  const ReduceOp op = reduction.op();
  std::vector<W> folds;
  for (const T value : values) {
    W wide = static_cast<W>(value);
    if (is_logical(op)) wide = static_cast<W>(wide != W());
    if (op == ReduceOp::premul_sum) {
      if constexpr (is_complex<T>) {
        wide *= static_cast<typename T::value_type>(reduction.factor());
      } else {
        wide = static_cast<W>(wide * static_cast<W>(reduction.factor()));
      }
    }
    folds.push_back(wide);
  }
  if (reduction.is_canonical()) {
    for (std::size_t distance = 1; distance < folds.size(); distance *= 2) {
      for (std::size_t left = 0; left + distance < folds.size(); left += 2 * distance) {
        folds[left] = combine<T>(op, folds[left], folds[left + distance]);
      }
    }
  } else {
    for (std::size_t i = 1; i < folds.size(); ++i) folds[0] = combine<T>(op, folds[0], folds[i]);
  }
  W result = folds[0];
  if (op == ReduceOp::mean) {
    if constexpr (is_complex<T>) {
      result /= static_cast<typename T::value_type>(values.size());
    } else {
      result = static_cast<W>(result / static_cast<W>(values.size()));
    }
  }
  return static_cast<T>(result);
}

}  // namespace dlaunch::testing
