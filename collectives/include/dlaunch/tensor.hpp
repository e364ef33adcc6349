#pragma once

#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>

#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

namespace dlaunch {

/// The element types. The numbers are a contract: the same in C++, in C and on the wire.
enum class DType : std::uint8_t {
  u8 = 1,
  i8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,   ///< IEEE 754 binary16.
  bf16,  ///< The upper half of an f32.
  f32,
  f64,
  boolean,  ///< One byte, 0 or 1.
  c64,      ///< std::complex<float>.
  c128,     ///< std::complex<double>.
};

/// "f32", "bool"... A static string; never null.
DLAUNCH_API const char* to_string(DType dtype) noexcept;

/// Bytes of one element; 0 for a value that is none of the enumerators.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean:
      return 1;
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::u32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::u64:
    case DType::f64:
    case DType::c64:
      return 8;
    case DType::c128:
      return 16;
  }
  return 0;
}

/// An IEEE binary16 number: storage and conversions, no arithmetic. Converting rounds to nearest,
/// ties to even; infinities and NaN are kept.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() noexcept = default;
  constexpr explicit float16(float value) noexcept
      : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  constexpr explicit operator float() const noexcept;
  friend constexpr bool operator==(float16 a, float16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t round(std::uint32_t single) noexcept;
};

/// The upper 16 bits of an f32: storage and conversions, no arithmetic. Rounds as float16 does.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() noexcept = default;
  constexpr explicit bfloat16(float value) noexcept {
    const auto single = std::bit_cast<std::uint32_t>(value);
    if ((single & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>((single >> 16) | 0x40U);  // Stays a NaN, quiet.
    } else {
      bits = static_cast<std::uint16_t>((single + 0x7fffU + ((single >> 16) & 1U)) >> 16);
    }
  }
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

constexpr std::uint16_t float16::round(std::uint32_t single) noexcept {
  const std::uint32_t sign = (single >> 16) & 0x8000U;
  const std::uint32_t magnitude = single & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // to infinity
  if (magnitude < 0x38800000U) {
    // Subnormal in binary16: counted in units of 2^-24. Adding 0.5f aligns the f32 so that its
    // last 23 bits count just that, and the addition itself rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

constexpr float16::operator float() const noexcept {
  const std::uint32_t sign = (static_cast<std::uint32_t>(bits) & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  }
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
}

/// Which DType a C++ type is. The primary has no value: an unsupported type does not compile.
template <class T>
struct dtype_of;

template <std::integral T>
requires(!std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
         !std::same_as<T, char8_t> && !std::same_as<T, char16_t> &&
         !std::same_as<T, char32_t>) struct dtype_of<T> {
  static constexpr DType value = sizeof(T) == 1   ? (std::is_signed_v<T> ? DType::i8 : DType::u8)
                                 : sizeof(T) == 2 ? (std::is_signed_v<T> ? DType::i16 : DType::u16)
                                 : sizeof(T) == 4 ? (std::is_signed_v<T> ? DType::i32 : DType::u32)
                                                  : (std::is_signed_v<T> ? DType::i64 : DType::u64);
  static_assert(size_of(value) == sizeof(T));
};
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct dtype_of<std::byte> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_of<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<std::complex<float>> {
  static constexpr DType value = DType::c64;
};
template <>
struct dtype_of<std::complex<double>> {
  static constexpr DType value = DType::c128;
};

/// Where memory lies.
struct Place {
  int cuda_device = -1;  ///< -1: host memory; else the CUDA device's number.

  constexpr bool is_host() const noexcept { return cuda_device < 0; }
  bool operator==(const Place&) const = default;
};

/// A run of `count` elements of one type somewhere in memory. It never owns: what it shows must
/// live until the call returns, and for a started call until its Work is complete. Made from any
/// contiguous range that outlives the expression (vector, array, span); a temporary container, a
/// type without a DType, and const data where a call writes do not compile. A plain value.
template <class Void>
struct BasicView {
  Void* data = nullptr;
  std::size_t count = 0;  ///< Elements, not bytes.
  DType dtype = DType::u8;
  Place place = {};
  /// Elements from one to the next: 1 is contiguous, n walks a column of a row-major matrix with
  /// n columns. Anything but 1 is packed into a temporary buffer for the call.
  std::ptrdiff_t stride = 1;

  constexpr BasicView() noexcept = default;
  constexpr BasicView(Void* first, std::size_t elements, DType type, Place where = {},
                      std::ptrdiff_t step = 1) noexcept
      : data(first), count(elements), dtype(type), place(where), stride(step) {}

  template <std::ranges::contiguous_range R, class T = std::ranges::range_value_t<R>>
  requires(std::ranges::sized_range<R>&& std::ranges::borrowed_range<R>&& requires(R&& range,
                                                                                   Void*& pointer) {
    pointer = std::ranges::data(range);
    dtype_of<T>::value;
  }) constexpr BasicView(R&& range)  // NOLINT: the conversion is the point.
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<T>::value) {}

  /// A writable view is also a readable one.
  template <std::same_as<BasicView<void>> Writable>
  requires(std::is_const_v<Void>) constexpr BasicView(
      const Writable& other) noexcept  // NOLINT: as T* converts to const T*.
      : data(other.data),
        count(other.count),
        dtype(other.dtype),
        place(other.place),
        stride(other.stride) {}

  constexpr std::size_t bytes() const noexcept { return count * size_of(dtype); }
};

/// What a call writes, or reads and writes.
using TensorView = BasicView<void>;
/// What a call only reads.
using ConstTensorView = BasicView<const void>;

/// A view of one variable: `comm.all_reduce(dlaunch::view_of(loss))`.
template <class T>
constexpr TensorView view_of(T& value) noexcept
    requires(!std::is_const_v<T> && requires { dtype_of<T>::value; }) {
  return {&value, 1, dtype_of<T>::value};
}
template <class T>
constexpr ConstTensorView view_of(const T& value) noexcept
    requires(requires { dtype_of<T>::value; }) {
  return {&value, 1, dtype_of<T>::value};
}
template <class T>
requires(!std::is_lvalue_reference_v<T>) constexpr ConstTensorView
    view_of(T&& temporary) = delete;  // It would dangle.

}  // namespace dlaunch
