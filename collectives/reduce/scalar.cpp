#include "collectives/reduce/element_types.hpp"
#include "collectives/reduce/kernels.hpp"

#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace dlaunch::kernels {
namespace {

/// One element of T, from memory that need not be aligned for T.
template <class T>
T load(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(const Job& job, std::size_t i, T value) {
  std::memcpy(job.out + i * sizeof(T), &value, sizeof(T));
  if (job.also != nullptr) std::memcpy(job.also + i * sizeof(T), &value, sizeof(T));
}

/// 64 bits hold the sum of every narrower type, so that only 64-bit elements can wrap.
template <class T>
void mean(const Job& job) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  for (std::size_t i = 0; i < job.count; ++i) {
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; rank < job.ranks; ++rank) {
      sum += static_cast<std::uint64_t>(static_cast<Wide>(load<T>(job.inputs[rank], i)));
    }
    store(job, i, static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(job.ranks)));
  }
}

template <class C>
void product(const Job& job) {
  for (std::size_t i = 0; i < job.count; ++i) {
    C all = load<C>(job.inputs[0], i);
    for (std::size_t rank = 1; rank < job.ranks; ++rank) all *= load<C>(job.inputs[rank], i);
    store(job, i, all);
  }
}

/// The reduction of 2^depth ranks, or as many of them as there are.
template <class C>
C product_of_pairs(const Job& job, std::size_t i, std::size_t first, int depth) {
  if (depth == 0) return load<C>(job.inputs[first], i);
  const std::size_t second = first + (std::size_t{1} << (depth - 1));
  const C left = product_of_pairs<C>(job, i, first, depth - 1);
  return second < job.ranks ? left * product_of_pairs<C>(job, i, second, depth - 1) : left;
}

template <class C>
void product_in_pairs(const Job& job) {
  const int depth = static_cast<int>(std::bit_width(job.ranks - 1));
  for (std::size_t i = 0; i < job.count; ++i) store(job, i, product_of_pairs<C>(job, i, 0, depth));
}

Kernel find_mean(DType dtype) {
  return with_element(dtype, [](auto element) -> Kernel {
    using T = decltype(element);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return mean<T>;
    return nullptr;
  });
}

template <class Part>
Kernel find_complex_product(Association association) {
  using C = std::complex<Part>;
  return association == Association::left ? product<C> : product_in_pairs<C>;
}

}  // namespace

Kernel find_scalar(ReduceOp op, DType dtype, Association association) {
  if (op == ReduceOp::mean) return find_mean(dtype);
  if (op != ReduceOp::product) return nullptr;
  if (!is_of(ElementKind::complex, dtype)) return nullptr;
  return element_type(dtype).part == DType::f32 ? find_complex_product<float>(association)
                                                : find_complex_product<double>(association);
}

}  // namespace dlaunch::kernels
