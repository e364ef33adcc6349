#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace dlaunch {

/// How the ranks' elements become one. The numbers are a contract: the same in C++, C and on the
/// wire.
enum class ReduceOp : std::uint8_t {
  sum = 1,  ///< Integers wrap modulo 2^bits. bool: logical or.
  product,  ///< Integers wrap. bool: logical and.
  min,      ///< A NaN of any rank wins. Not for complex numbers.
  max,      ///< The same.
  mean,     ///< The sum divided by the number of ranks. Integers: see ReduceOptions.
  band,     ///< Bitwise and; integers and bool only.
  bor,
  bxor,
  premul_sum,  ///< Sum of factor * element; made by Reduction::premul_sum.
  custom,      ///< The program's own; made by Reduction::custom.
};

/// "sum", "min"... A static string; never null.
DLAUNCH_API const char* to_string(ReduceOp op) noexcept;

/// An operation and what it needs. Every operation reduces the ranks' elements in the order of the
/// ranks, from left to right, so the result has the same bits on all ranks and from run to run;
/// canonical() and any_order() ask for others. f16 and bf16 are accumulated in f32 and rounded
/// once, at the end. If several ranks bring a NaN, it is not defined which of them a sum or a
/// product shows. A value; safe to copy and to read from any thread.
class DLAUNCH_API Reduction {
 public:
  /// accumulated[i] = accumulated[i] op next[i] for `count` elements of `dtype`. Called on the
  /// thread of the collective; must be the same function on all ranks, and must not throw.
  using Fold = std::function<void(void* accumulated, const void* next, std::size_t count, DType)>;

  /// Error{misuse} for premul_sum and custom, which need more than their name.
  Reduction(ReduceOp op = ReduceOp::sum)  // NOLINT: `all_reduce(x, ReduceOp::max)` is the point.
      : op_(op) {
    if (op == ReduceOp::premul_sum || op == ReduceOp::custom) refuse(op);
  }
  /// Each element times `factor`, then summed; in f32 for 16-bit types, and in the element's own
  /// type else. The factor is the same on all ranks, else Error{mismatch}. Floats and complex only.
  static Reduction premul_sum(double factor);
  /// An operation of your own; `name` shows in messages and is compared between ranks.
  static Reduction custom(std::string name, Fold fold);

  /// The same operation, reduced by a tree that does not depend on how ranks are spread over nodes:
  /// ranks 0 and 1, 2 and 3..., then pairs of pairs, and so on: (0 + 1) + (2 + 3). Sums of floats
  /// are rounded in another order than without it, and lose less with many ranks. Whichever
  /// algorithm runs, the bits are the same. Ranks that disagree on it get Error{mismatch}.
  Reduction canonical() const;
  /// The same operation, reduced in whatever order is fastest for the size and for where the ranks
  /// are: ranks of a node first, or along a ring. The bits are the same on all ranks, and from run
  /// to run with the same ranks in the same places; another size or placement may round sums and
  /// products of floats otherwise. Reductions whose bits do not depend on the order (of integers)
  /// are made like that without it. A custom operation has to be associative and commutative. Takes
  /// the place of canonical(), as that does of it; ranks that disagree on it get Error{mismatch}.
  Reduction any_order() const;

  ReduceOp op() const noexcept { return op_; }
  bool is_canonical() const noexcept { return order_ == Order::pairs; }
  bool is_any_order() const noexcept { return order_ == Order::any; }
  double factor() const noexcept { return factor_; }
  /// "sum", or a custom operation's name.
  std::string name() const;
  /// Empty unless custom.
  const Fold& fold() const noexcept;

 private:
  [[noreturn]] static void refuse(ReduceOp op);

  struct Custom;
  enum class Order : std::uint8_t { ranks, pairs, any };

  ReduceOp op_;
  Order order_ = Order::ranks;
  double factor_ = 1;
  std::shared_ptr<const Custom> custom_;
};

}  // namespace dlaunch
