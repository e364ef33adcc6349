#pragma once

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <cstdint>

/// The loops behind Reducer. One source of loops, lanes.hpp, is compiled once for each set
/// of instructions; Reducer chooses among them. Nothing here is for anybody but Reducer and its
/// tests.
namespace dlaunch::kernels {

/// One reduction, as a kernel needs it.
struct Job {
  const std::byte* const* inputs;
  std::size_t ranks;  ///< At least 1.
  std::byte* out;
  std::byte* also;    ///< A second copy of the result, or null.
  std::size_t count;  ///< Elements of the kernel, of which a complex number is two.
  double factor;      ///< premul_sum only.
  bool streamed;      ///< `out` is written past the caches where that can be done.
};
using Kernel = void (*)(const Job&);
struct Found {
  Kernel kernel = nullptr;
  std::uint8_t lanes = 1;  ///< Elements of the kernel in one of the type.
};

/// The association of ranks' elements. The order of ranks is kept either way.
enum class Association : std::uint8_t {
  left,   ///< ((0 + 1) + 2) + 3
  pairs,  ///< (0 + 1) + (2 + 3): neighbours at distance 1, then 2, 4...
};

/// The kernel of a reduction of a type that is not complex; null if it makes no sense, is the
/// program's own, or is a mean of integers. Baseline runs on every processor of its architecture;
/// the others exist on x86-64 only.
Kernel find_baseline(ReduceOp op, DType dtype, Association association);
Kernel find_avx2(ReduceOp op, DType dtype, Association association);
Kernel find_avx512(ReduceOp op, DType dtype, Association association);

/// The same by the best instructions of this processor, and for complex types, too.
const Found& find_best(ReduceOp op, DType dtype, Association association) noexcept;

/// `count` elements of a 16-bit type to those in which it is accumulated, and back, rounded once.
using Convert = void (*)(const std::byte* from, std::byte* to, std::size_t count);
struct Conversions {
  Convert widen, round;
};
/// Those of f16 or bf16; nulls for every other type.
Conversions conversions_baseline(DType dtype);
Conversions conversions_avx2(DType dtype);
Conversions conversions_avx512(DType dtype);

/// For reductions without vectors: products of complex numbers and means of integers.
Kernel find_scalar(ReduceOp op, DType dtype, Association association);

}  // namespace dlaunch::kernels
