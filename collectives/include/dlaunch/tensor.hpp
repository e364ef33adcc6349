#pragma once

#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>

#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string_view>
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

/// A type that a tensor may be made of.
template <class T>
concept Element = requires {
  dtype_of<std::remove_cvref_t<T>>::value;
};

/// The place of memory.
struct Place {
  int cuda_device = -1;  ///< -1: host memory; else the CUDA device's number.

  constexpr bool is_host() const noexcept { return cuda_device < 0; }
  bool operator==(const Place&) const = default;
};

template <class Void>
struct BasicView;

/// Says at compile time why a T cannot be a view.
template <class Void, class T>
constexpr void explain_no_view() noexcept;

/// A T by which a type of the program's own says what it shows.
template <class T>
concept ShowsItself = requires(T&& value) {
  static_cast<T&&>(value).operator BasicView<void>();
}
|| requires(T&& value) { static_cast<T&&>(value).operator BasicView<const void>(); };

/// A variable of an element type.
template <class T, class Void>
concept ViewedElement = Element<T> && std::convertible_to<T*, Void*>;

/// A range that outlives the expression and whose elements lie side by side.
template <class T, class Void>
concept ViewedRange = std::ranges::contiguous_range<T> && std::ranges::sized_range<T> &&
    std::ranges::borrowed_range<T> && Element<std::ranges::range_value_t<T>> &&
    requires(T&& range, Void*& pointer) {
  pointer = std::ranges::data(range);
};

/// A run of `count` elements of one type somewhere in memory. It never owns: what it shows must
/// live until the call returns, and for a started call until its Work is complete. Made from a
/// variable, which is one element, and from any contiguous range that outlives the expression
/// (vector, array, span). A thing that cannot be viewed does not compile, and the compiler says
/// why: a temporary, a type without a DType, vector<bool>, text, a bare pointer, const data where a
/// call writes. A plain value.
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

  template <class T>
  requires ViewedElement<T, Void>
  constexpr BasicView(T& element) noexcept  // NOLINT: the conversion is the point.
      : data(std::addressof(element)), count(1), dtype(dtype_of<std::remove_cv_t<T>>::value) {}

  template <class R>
  requires ViewedRange<R, Void>
  constexpr BasicView(R&& range)  // NOLINT: the conversion is the point.
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<R>>::value) {}

  /// Anything else but a view, for the sentence that says what is wrong.
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, BasicView<void>> &&
           !std::same_as<std::remove_cvref_t<T>, BasicView<const void>> && !ShowsItself<T> &&
           !ViewedRange<T, Void> &&
           !(std::is_lvalue_reference_v<T> &&
             ViewedElement<std::remove_reference_t<T>, Void>)) constexpr BasicView(T&&)  // NOLINT
      noexcept {
    explain_no_view<Void, T>();
  }

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

template <class Void, class T>
constexpr void explain_no_view() noexcept {
  constexpr bool never = false && std::is_void_v<T>;
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::convertible_to<T, std::string_view>) {
    static_assert(never,
                  "dlaunch: text is no tensor; pass it as a structured value (broadcast_object, "
                  "all_gather_objects, send_object), or as bytes: "
                  "std::as_writable_bytes(std::span(text))");
  } else if constexpr (std::is_pointer_v<Value>) {
    static_assert(never,
                  "dlaunch: a pointer does not say how many elements there are; pass "
                  "std::span(pointer, count), or a view with pointer, count and dtype");
  } else if constexpr (Element<T> && !std::is_lvalue_reference_v<T>) {
    static_assert(never,
                  "dlaunch: a temporary is gone before what borrows it; pass a variable that "
                  "outlives the call");
  } else if constexpr (Element<T>) {
    static_assert(never, "dlaunch: the call writes here, and this variable is const");
  } else if constexpr (!std::ranges::range<T>) {
    static_assert(
        never,
        "dlaunch: this is no tensor; pass a variable of an element type (an integer, "
        "float, double, bool, std::byte, float16, bfloat16 or std::complex; char is none, "
        "std::int8_t is), or a vector, array or span of such elements; a Tensor and a "
        "buffer have view() or as<T>(), and a structured value goes by a call for objects "
        "(broadcast_object)");
  } else if constexpr (std::same_as<std::ranges::range_value_t<T>, bool> &&
                       !std::ranges::contiguous_range<T>) {
    static_assert(never,
                  "dlaunch: std::vector<bool> keeps bits, not elements; use "
                  "std::vector<std::uint8_t>, or an array of bool");
  } else if constexpr (!std::ranges::contiguous_range<T>) {
    static_assert(never,
                  "dlaunch: these elements do not lie side by side in memory; copy them to a "
                  "vector");
  } else if constexpr (!Element<std::ranges::range_value_t<T>>) {
    static_assert(never,
                  "dlaunch: these elements have no DType; a tensor is made of integers, floats, "
                  "bool, std::byte, float16, bfloat16 or std::complex");
  } else if constexpr (!std::ranges::borrowed_range<T>) {
    static_assert(never,
                  "dlaunch: a temporary is gone before what borrows it; pass a variable that "
                  "outlives the call");
  } else {
    static_assert(never, "dlaunch: the call writes here, and these elements are const");
  }
}

}  // namespace dlaunch
