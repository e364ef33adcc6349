#pragma once

#include "collectives/algorithms/select/parts.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/message/message.hpp"
#include "runtime/base/enum_table.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dlaunch {

/// The relation between the buffers of a collective.
enum class Buffers : std::uint8_t {
  none,
  one,        ///< `out` is read and written, unless the call has an `in`.
  alike,      ///< `in` and `out` have as many elements.
  gathered,   ///< `in` is a rank's part of `out`.
  dealt_out,  ///< `out` is a rank's part of `in`.
  exchanged,  ///< Both have a part for each rank.
};

/// The description of a collective's arguments. A new collective is a row.
struct Shape {
  transport::Op op{};
  Buffers buffers = Buffers::none;
  bool reduces = false;
  bool has_counts = false;  ///< A count for each part; else all parts are equal.
};
inline constexpr auto shapes =
    enum_table<&Shape::op, transport::Op::barrier, transport::Op::exscan>({
        {.op = transport::Op::barrier, .buffers = Buffers::none},
        {.op = transport::Op::broadcast, .buffers = Buffers::one},
        {.op = transport::Op::reduce, .buffers = Buffers::alike, .reduces = true},
        {.op = transport::Op::all_reduce, .buffers = Buffers::one, .reduces = true},
        {.op = transport::Op::all_gather, .buffers = Buffers::gathered},
        {.op = transport::Op::all_gather_v, .buffers = Buffers::gathered, .has_counts = true},
        {.op = transport::Op::gather, .buffers = Buffers::gathered},
        {.op = transport::Op::gather_v, .buffers = Buffers::gathered, .has_counts = true},
        {.op = transport::Op::scatter, .buffers = Buffers::dealt_out},
        {.op = transport::Op::scatter_v, .buffers = Buffers::dealt_out, .has_counts = true},
        {.op = transport::Op::reduce_scatter, .buffers = Buffers::dealt_out, .reduces = true},
        {.op = transport::Op::reduce_scatter_v,
         .buffers = Buffers::dealt_out,
         .reduces = true,
         .has_counts = true},
        {.op = transport::Op::all_to_all, .buffers = Buffers::exchanged},
        {.op = transport::Op::all_to_all_v, .buffers = Buffers::exchanged, .has_counts = true},
        {.op = transport::Op::scan, .buffers = Buffers::alike, .reduces = true},
        {.op = transport::Op::exscan, .buffers = Buffers::alike, .reduces = true},
    });
constexpr Shape shape_of(transport::Op op) noexcept { return shapes.of(op); }

/// One collective with its arguments, for its blocking form, its started form and the form on a
/// device. Everything that it points to is borrowed. A value.
struct CollectiveCall {
  transport::Op op{};
  Options options;
  ConstTensorView in = {};
  TensorView out = {};
  int root = -1;                                 ///< -1: none.
  const Reduction* reduction = nullptr;          ///< Null: none.
  std::span<const std::size_t> counts = {};      ///< The parts' counts; an exchange's are `in`'s.
  std::span<const std::size_t> out_counts = {};  ///< An exchange's.
  bool truncate_mean = false;                    ///< See ReduceOptions.
  bool ordered_output = false;                   ///< See BarrierOptions.
  std::uint32_t traffic = 0;                     ///< Its purpose, packed; 0: the program's own.
  bool has_in = false;                           ///< It has an `in`, although one buffer would do.
  /// Whether the parts lie in views of their own instead of one buffer.
  bool is_list = false;
  /// The views in place of `in`, which in an exchange gives only the type and the place.
  std::span<const ConstTensorView> ins = {};
  std::span<const TensorView> outs = {};  ///< In place of `out`.

  /// The view whose elements ranks compare.
  ConstTensorView compared() const noexcept { return compared_by(op); }
  [[gnu::always_inline]] ConstTensorView compared_by(transport::Op by) const noexcept {
    const Buffers buffers = shape_of(by).buffers;
    return buffers == Buffers::one || buffers == Buffers::dealt_out ? ConstTensorView(out) : in;
  }
  /// Forgets the buffer that the root alone uses, unless `rank` is the root.
  void forget_unused(int rank) noexcept {
    if (!transport::is_rooted(op) || rank == root) return;
    const Buffers buffers = shape_of(op).buffers;
    if (buffers == Buffers::dealt_out) {
      in = {};
      ins = {};
    }
    if (buffers == Buffers::gathered || buffers == Buffers::alike) {
      out = {};
      outs = {};
    }
  }
  /// The CUDA device on which a buffer lies; -1: none does.
  int device() const noexcept {
    if (!in.place.is_host()) return in.place.cuda_device;
    return is_list && out.place.is_host() ? device_of_list() : out.place.cuda_device;
  }

 private:
  int device_of_list() const noexcept;
};

// Each of these takes the operation beside the call, so that if it is a constant, code for the
// others vanishes.

/// The fingerprint of a call, which ranks compare, without its number.
[[gnu::always_inline]] inline transport::Fingerprint fingerprint_of(transport::Op op,
                                                                    const CollectiveCall& what) {
  const Shape shape = shape_of(op);
  transport::Fingerprint print;
  print.op = op;
  print.root = what.root;
  print.traffic = what.traffic;
  if (shape.buffers == Buffers::none) return print;
  const ConstTensorView compared = what.compared_by(op);
  print.dtype = compared.dtype;
  print.count = shape.has_counts ? transport::counts_vary : compared.count;
  if (shape.reduces) {
    print.reduce = what.reduction->op();
    print.argument = hash_of(*what.reduction);
  }
  // The counts of a root are known to it alone, and in an exchange every rank has others, so they
  // are not compared.
  if (shape.has_counts && !transport::is_rooted(op) && shape.buffers != Buffers::exchanged) {
    print.argument ^= transport::hash_bytes(what.counts.data(), what.counts.size_bytes());
  }
  return print;
}

/// The place of each rank's part, in bytes: equal parts, or by the given counts.
[[gnu::always_inline]] inline algorithms::Offsets parts_of(transport::Op op, const Call& call,
                                                           const CollectiveCall& what) {
  const ConstTensorView own = what.compared_by(op);
  if (!shape_of(op).has_counts) return {call.size(), own.bytes()};
  return algorithms::parts_of(what.counts, size_of(own.dtype));
}

/// Checks both buffers of a call on a rank that uses both, and its reduction.
void check_both(const Call& call, const CollectiveCall& what);

/// Checks that a reduction's own elements are not too large, and that every part has whole ones.
void check_elements(const Call& call, const CollectiveCall& what);

/// Checks all arguments, except the reduction of a call with one buffer or none, which
/// reducer_for() judges. Throws Error{misuse} with a sentence. To be called after forget_unused().
/// A call that has an `in` where one buffer would do is for check_both().
[[gnu::always_inline]] inline void check(transport::Op op, const Call& call,
                                         const CollectiveCall& what) {
  const Shape shape = shape_of(op);
  if (transport::is_rooted(op)) check_root(call, what.root);
  if (shape.buffers == Buffers::none) return;
  if (shape.buffers == Buffers::one) return check_view(call, what.out, "inout");
  check_view(call, what.compared_by(op), shape.buffers == Buffers::dealt_out ? "out" : "in");
  if (!transport::is_rooted(op) || call.rank() == what.root) check_both(call, what);
}

/// Throws Error{misuse} where the operation makes no sense for the type.
[[gnu::always_inline]] inline Reducer reducer_for(transport::Op op, const Call& call,
                                                  const CollectiveCall& what) {
  const DType dtype = what.compared_by(op).dtype;
  try {
    return Reducer(*what.reduction, dtype, what.truncate_mean);
  } catch (const Error& senseless) {
    refuse(
        call,
        Reducer::objection(*what.reduction, dtype, what.truncate_mean).value_or(senseless.what()));
  }
}

/// A call that waits for its turn. It owns everything that a CollectiveCall borrows, except the
/// buffers.
class WaitingCall {
 public:
  explicit WaitingCall(const CollectiveCall& what);
  /// Borrows from this one.
  CollectiveCall what() const;
  /// Whether its reduction is the program's own code.
  bool has_own_code() const noexcept { return reduction_ && reduction_->op() == ReduceOp::custom; }
  bool orders_output() const noexcept { return what_.ordered_output; }
  /// The size of the view whose elements ranks compare.
  std::size_t bytes() const noexcept {
    return what_.compared().count * size_of(what_.compared().dtype);
  }

 private:
  CollectiveCall what_;
  std::optional<Reduction> reduction_;
  std::vector<std::size_t> counts_, out_counts_;
  std::vector<ConstTensorView> ins_;
  std::vector<TensorView> outs_;
};

}  // namespace dlaunch
