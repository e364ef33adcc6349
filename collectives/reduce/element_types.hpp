#pragma once

#include "runtime/base/enum_table.hpp"

#include <dlaunch/error.hpp>
#include <dlaunch/tensor.hpp>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>

/// The properties of element types, except their kernels (lanes.hpp, scalar.cpp).
namespace dlaunch {

enum class ElementKind : std::uint8_t { integer, boolean, floating, complex };

/// A new type is a row, and a case below.
struct ElementType {
  DType dtype{};
  const char* name = "";
  ElementKind kind{};
  DType accumulated{};  ///< The type in which a fold accumulates.
  DType part{};         ///< A complex number's part; else the type itself.
  double off_max = 0;   ///< The largest relative error of a mean.
  bool in_nccl = true;  ///< NCCL reduces it.
};
inline constexpr auto element_types = enum_table<&ElementType::dtype, DType::u8, DType::c128>({
    {DType::u8, "u8", ElementKind::integer, DType::u8, DType::u8},
    {DType::i8, "i8", ElementKind::integer, DType::i8, DType::i8},
    {DType::i16, "i16", ElementKind::integer, DType::i16, DType::i16, 0, false},
    {DType::u16, "u16", ElementKind::integer, DType::u16, DType::u16, 0, false},
    {DType::i32, "i32", ElementKind::integer, DType::i32, DType::i32},
    {DType::u32, "u32", ElementKind::integer, DType::u32, DType::u32},
    {DType::i64, "i64", ElementKind::integer, DType::i64, DType::i64},
    {DType::u64, "u64", ElementKind::integer, DType::u64, DType::u64},
    {DType::f16, "f16", ElementKind::floating, DType::f32, DType::f16, 0x1p-9},
    {DType::bf16, "bf16", ElementKind::floating, DType::f32, DType::bf16, 0x1p-6},
    {DType::f32, "f32", ElementKind::floating, DType::f32, DType::f32, 0x1p-21},
    {DType::f64, "f64", ElementKind::floating, DType::f64, DType::f64, 0x1p-50},
    {DType::boolean, "bool", ElementKind::boolean, DType::boolean, DType::boolean, 0, false},
    {DType::c64, "c64", ElementKind::complex, DType::c64, DType::f32, 0x1p-21, false},
    {DType::c128, "c128", ElementKind::complex, DType::c128, DType::f64, 0x1p-50, false},
});
static_assert(std::ranges::all_of(element_types,
                                  [](const ElementType& row) { return size_of(row.dtype) != 0; }) &&
                  size_of(static_cast<DType>(element_types.size() + 1)) == 0,
              "a row for each element type");

/// Null for a number that is none of them.
constexpr const ElementType* find_element_type(DType dtype) noexcept {
  return element_types.find(dtype);
}
constexpr ElementType element_type(DType dtype) noexcept { return element_types.of(dtype); }
constexpr bool is_of(ElementKind kind, DType dtype) noexcept {
  const ElementType* const found = find_element_type(dtype);
  return found != nullptr && found->kind == kind;
}

/// Calls `visit` with an element of the type, which is for its C++ type alone.
template <class Visit>
decltype(auto) with_element(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::u8:
      return visit(std::uint8_t{});
    case DType::i8:
      return visit(std::int8_t{});
    case DType::i16:
      return visit(std::int16_t{});
    case DType::u16:
      return visit(std::uint16_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::u32:
      return visit(std::uint32_t{});
    case DType::i64:
      return visit(std::int64_t{});
    case DType::u64:
      return visit(std::uint64_t{});
    case DType::f16:
      return visit(float16{});
    case DType::bf16:
      return visit(bfloat16{});
    case DType::f32:
      return visit(float{});
    case DType::f64:
      return visit(double{});
    case DType::boolean:
      return visit(bool{});
    case DType::c64:
      return visit(std::complex<float>{});
    case DType::c128:
      return visit(std::complex<double>{});
  }
  throw Error(Errc::internal, "a number is no element type");
}

}  // namespace dlaunch
