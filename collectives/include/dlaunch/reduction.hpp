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
  land,  ///< Logical and: 1 where every rank's element is not 0, else 0. Integers and bool only.
  lor,
  lxor,  ///< 1 where an odd number of ranks' elements are not 0.
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
  /// accumulated[i] = accumulated[i] op next[i] for `count` elements of `dtype`, or of the
  /// reduction's own size. Called on a thread of the library's choice while a call is under way,
  /// one call at a time; must be the same function on all ranks, and makes no call of this library.
  /// What it throws the call throws; the other ranks get Error{internal} that says it, and the
  /// communicator is broken. Neither buffer need be aligned for more than its element type.
  using Fold = std::function<void(void* accumulated, const void* next, std::size_t count, DType)>;

  /// Error{misuse} for premul_sum and custom, which need more than their name.
  Reduction(ReduceOp op = ReduceOp::sum)  // NOLINT: `all_reduce(x, ReduceOp::max)` is the point.
      : op_(op) {
    if (op == ReduceOp::premul_sum || op == ReduceOp::custom) refuse(op);
  }
  /// Each element times `factor`, then summed; in f32 for 16-bit types, and in the element's own
  /// type else. The factor is the same on all ranks, else Error{mismatch}. Floats and complex only.
  static Reduction premul_sum(double factor);
  /// An operation of your own; `name` shows in messages and is compared between ranks. It has to be
  /// associative; its operands keep the order of the ranks unless it is told any_order().
  /// `element_bytes`: the size of an element of its own, as of a struct; the dtype of the buffers
  /// then only says in what they are counted (`std::as_writable_bytes(std::span(structs))`), and
  /// `count` of the function is that of such elements. The same on all ranks, else Error{mismatch};
  /// Error{misuse}: a buffer, or a rank's part, that is no whole number of them. 0: the dtype's
  /// elements. Those of more than 128 KiB, or than 512 KiB divided by the number of ranks, take a
  /// slower way, and memory for one or more of each rank.
  static Reduction custom(std::string name, Fold fold, std::size_t element_bytes = 0);

  /// Picks the pair of the least value among pairs of a value and an index, and among equal ones
  /// the one of the smallest index. Pairs lie as structs do, {double; int} for f64 and i32: see
  /// Located. A NaN wins over all numbers. In any order. Error{misuse}: a value that has no order,
  /// or an index that is neither i32 nor i64.
  static Reduction min_located(DType value, DType index);
  /// The same of the greatest value.
  static Reduction max_located(DType value, DType index);

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
  /// 0 unless custom with elements of its own.
  std::size_t element_bytes() const noexcept;

 private:
  [[noreturn]] static void refuse(ReduceOp op);

  struct Custom;
  enum class Order : std::uint8_t { ranks, pairs, any };

  ReduceOp op_;
  Order order_ = Order::ranks;
  double factor_ = 1;
  std::shared_ptr<const Custom> custom_;
};

/// A value and where it was found, as MPI_DOUBLE_INT is Located<double, int>:
/// `comm.all_reduce(std::as_writable_bytes(std::span(&nearest, 1)), nearest.least())`.
template <class T, class Index = std::int64_t>
struct Located {
  T value{};
  Index index{};

  static Reduction least() {
    return Reduction::min_located(dtype_of<T>::value, dtype_of<Index>::value);
  }
  static Reduction greatest() {
    return Reduction::max_located(dtype_of<T>::value, dtype_of<Index>::value);
  }
};

/// inout[i] = in[i] op inout[i], here and now, without a communicator: what a call does with the
/// elements of two ranks, of which `in` is the first. Both may be the same memory. Error{misuse}:
/// ReduceOp::mean or ReduceOp::premul_sum, which are of all ranks at once; buffers that differ in
/// dtype or count, or overlap; a reduction that has no meaning for the dtype. Error{unsupported}
/// for CUDA buffers. For any thread.
DLAUNCH_API void reduce_local(const ConstTensorView& in, const TensorView& inout,
                              const Reduction& reduction = {});

}  // namespace dlaunch
