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
  switch (dtype) {
    case DType::u8:
      return mean<std::uint8_t>;
    case DType::i8:
      return mean<std::int8_t>;
    case DType::i16:
      return mean<std::int16_t>;
    case DType::u16:
      return mean<std::uint16_t>;
    case DType::i32:
      return mean<std::int32_t>;
    case DType::u32:
      return mean<std::uint32_t>;
    case DType::i64:
      return mean<std::int64_t>;
    case DType::u64:
      return mean<std::uint64_t>;
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::boolean:
    case DType::c64:
    case DType::c128:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

Kernel find_scalar(ReduceOp op, DType dtype, Association association) {
  if (op == ReduceOp::mean) return find_mean(dtype);
  if (op != ReduceOp::product) return nullptr;
  const bool left = association == Association::left;
  if (dtype == DType::c64) {
    return left ? product<std::complex<float>> : product_in_pairs<std::complex<float>>;
  }
  if (dtype == DType::c128) {
    return left ? product<std::complex<double>> : product_in_pairs<std::complex<double>>;
  }
  return nullptr;
}

}  // namespace dlaunch::kernels
