#pragma once

#include "collectives/reduce/element_types.hpp"
#include "runtime/base/enum_table.hpp"

#include <dlaunch/reduction.hpp>

#include <cstddef>
#include <cstdint>

/// The properties of reductions, except their kernels (lanes.hpp, scalar.cpp).
namespace dlaunch {

/// How far a reduction may be taken apart without its bits changing.
enum class Freedom : std::uint8_t {
  none,        ///< One reduction of all ranks' own data.
  extends,     ///< The first ranks first, then the next ones onto their result.
  neighbours,  ///< Any ranks in a row first, in the order of ranks.
  any,         ///< Any ranks first, in any order.
};
/// Whether a reduction with this freedom has the `needed` one.
constexpr bool allows(Freedom freedom, Freedom needed) noexcept {
  switch (needed) {
    case Freedom::none:
      return true;
    case Freedom::extends:
      return freedom != Freedom::none;
    case Freedom::neighbours:
      return freedom == Freedom::neighbours || freedom == Freedom::any;
    case Freedom::any:
      return freedom == Freedom::any;
  }
  return false;
}

/// The parameter of a reduction, besides its operation.
enum class Needs : std::uint8_t { nothing, factor, function };

/// Whether an operation makes sense for elements of a kind, and why not.
enum class Sense : std::uint8_t {
  good,
  truncates,  ///< It drops the fraction, which the program has to allow.
  too_small,  ///< The result is no element of the kind.
  no_order,   ///< The elements have none.
  no_bits,    ///< The elements are no strings of bits.
  no_truth,   ///< The elements are neither true nor false.
};

/// A new reduction is a row, in the order of ReduceOp, and its kernels.
struct ReduceOpTraits {
  ReduceOp op{};
  const char* name =
      "unknown reduction";  ///< A number read off the wire may be newer than this build.
  Needs needs = Needs::nothing;
  Sense integer = Sense::good, boolean = Sense::good, floating = Sense::good, complex = Sense::good;
  /// The freedom, if the order of ranks is kept: for integers and booleans, and for numbers that
  /// are rounded.
  Freedom whole = Freedom::any, rounded = Freedom::extends;
  bool joins_by_sum = false;  ///< Partial results are added; else they are reduced like elements.
  bool is_by_parts = false;   ///< A complex number is reduced as its two parts are.
  bool is_truth = false;      ///< Elements count as 0 or 1, and an element of one rank, too.
  bool in_nccl = true;        ///< NCCL has it.
};
/// Only the order of operands decides which of two zeros, or NaNs, wins.
constexpr ReduceOpTraits choosing(ReduceOp op, const char* name) {
  return {.op = op, .name = name, .complex = Sense::no_order, .rounded = Freedom::neighbours};
}
constexpr ReduceOpTraits bitwise(ReduceOp op, const char* name) {
  return {.op = op,
          .name = name,
          .floating = Sense::no_bits,
          .complex = Sense::no_bits,
          .in_nccl = false};
}
constexpr ReduceOpTraits logical(ReduceOp op, const char* name) {
  return {.op = op,
          .name = name,
          .floating = Sense::no_truth,
          .complex = Sense::no_truth,
          .is_truth = true,
          .in_nccl = false};
}
inline constexpr auto reduce_ops = enum_table<&ReduceOpTraits::op, ReduceOp::sum, ReduceOp::lxor>({
    {.op = ReduceOp::sum, .name = "sum", .is_by_parts = true},
    {.op = ReduceOp::product, .name = "product"},
    choosing(ReduceOp::min, "min"),
    choosing(ReduceOp::max, "max"),
    // A mean of integers is divided where the sum is made, which may take more bits than an
    // element.
    {.op = ReduceOp::mean,
     .name = "mean",
     .integer = Sense::truncates,
     .boolean = Sense::too_small,
     .whole = Freedom::none,
     .joins_by_sum = true,
     .is_by_parts = true},
    bitwise(ReduceOp::band, "band"),
    bitwise(ReduceOp::bor, "bor"),
    bitwise(ReduceOp::bxor, "bxor"),
    {.op = ReduceOp::premul_sum,
     .name = "premul_sum",
     .needs = Needs::factor,
     .integer = Sense::too_small,
     .boolean = Sense::too_small,
     .joins_by_sum = true,
     .is_by_parts = true},
    {.op = ReduceOp::custom,
     .name = "custom",
     .needs = Needs::function,
     .whole = Freedom::extends,
     .in_nccl = false},
    logical(ReduceOp::land, "land"),
    logical(ReduceOp::lor, "lor"),
    logical(ReduceOp::lxor, "lxor"),
});

/// Null for a number that is none of them.
constexpr const ReduceOpTraits* find_traits(ReduceOp op) noexcept { return reduce_ops.find(op); }
constexpr ReduceOpTraits traits_of(ReduceOp op) noexcept { return reduce_ops.of(op); }
constexpr Sense sense_of(ReduceOp op, DType dtype) noexcept {
  const ReduceOpTraits row = traits_of(op);
  switch (element_type(dtype).kind) {
    case ElementKind::integer:
      return row.integer;
    case ElementKind::boolean:
      return row.boolean;
    case ElementKind::floating:
      return row.floating;
    case ElementKind::complex:
      return row.complex;
  }
  return Sense::good;
}

/// Whether a reduction with this (known) operation has no other parameter; false for no operation.
/// A bit in a constant, since small calls ask.
constexpr bool is_all(ReduceOp op) noexcept {
  constexpr std::uint32_t alone = [] {
    std::uint32_t bits = 0;
    for (const ReduceOpTraits& row : reduce_ops) {
      if (row.needs == Needs::nothing) bits |= 1U << static_cast<unsigned>(row.op);
    }
    return bits;
  }();
  static_assert(reduce_ops.size() < 32);
  return (alone >> (static_cast<unsigned>(op) % 32) & 1) != 0;
}

}  // namespace dlaunch
