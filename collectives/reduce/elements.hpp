#pragma once

// Vectors, and the elements of tensors in them, for one set of instructions: that of the file which
// includes this one. Everything is in an unnamed namespace, and no templates of the standard
// library are used: the linker might take a named function from a file whose instructions the
// processor does not have. Arithmetic is on GCC's and Clang's vector types, which the compiler
// splits where the processor's are narrower. The files are compiled without contraction: a product
// and a sum in one instruction round once where others round twice.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC warns that vector types lose their attribute as template arguments; here they do not.
#pragma GCC diagnostic ignored "-Wignored-attributes"
#endif

/// Functions are inlined always, since vectors have no stable calling convention.
#define DLAUNCH_INLINE inline __attribute__((always_inline))

namespace dlaunch::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

template <class E, int n>
struct VectorOf {
  typedef E type __attribute__((vector_size(n * sizeof(E))));
};
template <class E>
struct VectorOf<E, 1> {
  using type = E;
};
/// `n` elements of E; one alone is a plain E.
template <class E, int n>
using Lanes = typename VectorOf<E, n>::type;

template <class To, class From>
DLAUNCH_INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
template <class V>
DLAUNCH_INLINE V load(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
/// Converts values, not bits.
template <class To, int n, class From>
DLAUNCH_INLINE Lanes<To, n> convert(From from) {
  if constexpr (n == 1) {
    return static_cast<To>(from);
  } else {
    return __builtin_convertvector(from, Lanes<To, n>);
  }
}

// ---- Elements and what they are accumulated in. ----
//
// enter<n> makes `parts` accumulators of n lanes each of the n * parts elements at `from`, and
// leave<n> the elements of the accumulators. One does the same for a single element, with n = 1.

/// Types that are accumulated in themselves.
template <class T>
struct Plain {
  using Stored = T;
  using Summed = T;
  using One = Plain;
  static constexpr int parts = 1;
  template <int n>
  DLAUNCH_INLINE static void enter(const std::byte* from, Lanes<T, n>* to) {
    to[0] = load<Lanes<T, n>>(from);
  }
  template <int n>
  DLAUNCH_INLINE static Lanes<T, n> leave(const Lanes<T, n>* from) {
    return from[0];
  }
};

/// Compared as signed numbers, since not every processor compares unsigned ones; both are less than
/// 2^31.
template <int n>
DLAUNCH_INLINE auto exceeds(Lanes<std::uint32_t, n> a, std::int32_t b) {
  return bits_as<Lanes<std::int32_t, n>>(a) > b;
}

/// bfloat16 as tensor.hpp converts it. (AVX-512's own conversion takes subnormal numbers for zero.)
/// The result is in the upper half.
template <int n>
DLAUNCH_INLINE Lanes<std::uint32_t, n> rounded_to_bfloat(Lanes<float, n> value) {
  const auto single = bits_as<Lanes<std::uint32_t, n>>(value);
  const auto rounded = single + 0x7fffU + ((single >> 16) & 1U);
  return exceeds<n>(single & 0x7fffffffU, 0x7f800000) ? single | 0x400000U : rounded;
}

/// Two neighbours share 32 bits, and are taken apart and put together there: nothing is shuffled.
struct Bfloat {
  using Stored = std::uint16_t;
  using Summed = float;
  static constexpr int parts = 2;
  template <int n>
  DLAUNCH_INLINE static void enter(const std::byte* from, Lanes<float, n>* to) {
    const auto both = load<Lanes<std::uint32_t, n>>(from);
    to[0] = bits_as<Lanes<float, n>>(both << 16);
    to[1] = bits_as<Lanes<float, n>>(both & 0xffff0000U);
  }
  template <int n>
  DLAUNCH_INLINE static Lanes<std::uint32_t, n> leave(const Lanes<float, n>* from) {
    return (rounded_to_bfloat<n>(from[0]) >> 16) | (rounded_to_bfloat<n>(from[1]) & 0xffff0000U);
  }
  struct One {
    static constexpr int parts = 1;
    template <int n>
    DLAUNCH_INLINE static void enter(const std::byte* from, float* to) {
      to[0] = bits_as<float>(std::uint32_t{load<std::uint16_t>(from)} << 16);
    }
    template <int n>
    DLAUNCH_INLINE static std::uint16_t leave(const float* from) {
      return static_cast<std::uint16_t>(rounded_to_bfloat<1>(from[0]) >> 16);
    }
  };
};

#if defined(__F16C__) || defined(__aarch64__)

/// The processor keeps a NaN's upper bits; float16 here has one NaN of each sign.
template <class V>
DLAUNCH_INLINE V one_nan(V half) {
  return (half & 0x7fff) > 0x7c00 ? (half & 0x8000) | 0x7e00 : half;
}

/// float16, converted by the processor.
struct Half {
  using Stored = std::uint16_t;
  using Summed = float;
  static constexpr int parts = 1;
  template <int n>
  DLAUNCH_INLINE static void enter(const std::byte* from, Lanes<float, n>* to) {
    to[0] = widened<n>(load<Lanes<std::uint16_t, n>>(from));
  }
  template <int n>
  DLAUNCH_INLINE static Lanes<std::uint16_t, n> leave(const Lanes<float, n>* from) {
    return one_nan(rounded<n>(from[0]));
  }
  struct One {
    static constexpr int parts = 1;
    template <int n>
    DLAUNCH_INLINE static void enter(const std::byte* from, float* to) {
      const Lanes<std::uint16_t, 4> half{load<std::uint16_t>(from)};
      to[0] = widened<4>(half)[0];
    }
    template <int n>
    DLAUNCH_INLINE static std::uint16_t leave(const float* from) {
      const Lanes<float, 4> value{from[0]};
      return one_nan(rounded<4>(value))[0];
    }
  };

 private:
  template <int n>
  DLAUNCH_INLINE static Lanes<float, n> widened(Lanes<std::uint16_t, n> half) {
#if defined(__aarch64__)
    return bits_as<Lanes<float, 4>>(vcvt_f32_f16(bits_as<float16x4_t>(half)));
#else
#if defined(__AVX512F__)
    // Masked forms are used: GCC 12 believes that the others read uninitialized memory.
    if constexpr (n == 16) {
      return bits_as<Lanes<float, 16>>(_mm512_maskz_cvtph_ps(0xffff, bits_as<__m256i>(half)));
    }
#endif
    if constexpr (n == 8) return bits_as<Lanes<float, 8>>(_mm256_cvtph_ps(bits_as<__m128i>(half)));
    if constexpr (n == 4) {
      const Lanes<std::uint64_t, 2> low{bits_as<std::uint64_t>(half)};
      return bits_as<Lanes<float, 4>>(_mm_cvtph_ps(bits_as<__m128i>(low)));
    }
#endif
  }
  template <int n>
  DLAUNCH_INLINE static Lanes<std::uint16_t, n> rounded(Lanes<float, n> value) {
#if defined(__aarch64__)
    return bits_as<Lanes<std::uint16_t, 4>>(vcvt_f16_f32(bits_as<float32x4_t>(value)));
#else
#if defined(__AVX512F__)
    if constexpr (n == 16) {
      return bits_as<Lanes<std::uint16_t, 16>>(
          _mm512_maskz_cvtps_ph(0xffff, bits_as<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    if constexpr (n == 8) {
      return bits_as<Lanes<std::uint16_t, 8>>(
          _mm256_cvtps_ph(bits_as<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
    }
    if constexpr (n == 4) {
      const __m128i half = _mm_cvtps_ph(bits_as<__m128>(value), _MM_FROUND_TO_NEAREST_INT);
      return bits_as<Lanes<std::uint16_t, 4>>(bits_as<Lanes<std::uint64_t, 2>>(half)[0]);
    }
#endif
  }
};

#else

/// float16 as tensor.hpp converts it, in the lower half of 32 bits.
template <int n>
DLAUNCH_INLINE Lanes<float, n> widened_half(Lanes<std::uint32_t, n> half) {
  const auto sign = (half & 0x8000U) << 16;
  const auto magnitude = half & 0x7fffU;
  const auto shifted = magnitude << 13;
  // A subnormal number counts units of 2^-24.
  const auto small = bits_as<Lanes<std::uint32_t, n>>(
      convert<float, n>(bits_as<Lanes<std::int32_t, n>>(magnitude)) * 0x1p-24f);
  const auto finite = exceeds<n>(magnitude, 0x3ff) ? shifted + 0x38000000U : small;
  const auto all = exceeds<n>(magnitude, 0x7bff) ? (shifted | 0x7f800000U) : finite;
  return bits_as<Lanes<float, n>>(all | sign);
}
template <int n>
DLAUNCH_INLINE Lanes<std::uint32_t, n> rounded_to_half(Lanes<float, n> value) {
  const auto single = bits_as<Lanes<std::uint32_t, n>>(value);
  const auto sign = (single >> 16) & 0x8000U;
  const auto magnitude = single & 0x7fffffffU;
  const auto small =
      bits_as<Lanes<std::uint32_t, n>>(bits_as<Lanes<float, n>>(magnitude) + 0.5f) - 0x3f000000U;
  const auto normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  const auto finite = exceeds<n>(magnitude, 0x387fffff) ? normal : small;
  const Lanes<std::uint32_t, n> zero{}, nan = zero + 0x7e00U, infinity = zero + 0x7c00U;
  const auto large = exceeds<n>(magnitude, 0x7f800000) ? nan : infinity;
  return (exceeds<n>(magnitude, 0x477fefff) ? large : finite) | sign;
}

/// Two neighbours share 32 bits, as in Bfloat.
struct Half {
  using Stored = std::uint16_t;
  using Summed = float;
  static constexpr int parts = 2;
  template <int n>
  DLAUNCH_INLINE static void enter(const std::byte* from, Lanes<float, n>* to) {
    const auto both = load<Lanes<std::uint32_t, n>>(from);
    to[0] = widened_half<n>(both & 0xffffU);
    to[1] = widened_half<n>(both >> 16);
  }
  template <int n>
  DLAUNCH_INLINE static Lanes<std::uint32_t, n> leave(const Lanes<float, n>* from) {
    return rounded_to_half<n>(from[0]) | (rounded_to_half<n>(from[1]) << 16);
  }
  struct One {
    static constexpr int parts = 1;
    template <int n>
    DLAUNCH_INLINE static void enter(const std::byte* from, float* to) {
      to[0] = widened_half<1>(load<std::uint16_t>(from));
    }
    template <int n>
    DLAUNCH_INLINE static std::uint16_t leave(const float* from) {
      return static_cast<std::uint16_t>(rounded_to_half<1>(from[0]));
    }
  };
};

#endif

}  // namespace
}  // namespace dlaunch::kernels
