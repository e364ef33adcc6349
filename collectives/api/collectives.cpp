// Longer than a sitting: every call twice, blocking and started, one like the other.
#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/select/put.hpp"
#include "collectives/api/buffers.hpp"
#include "collectives/call/collective_call.hpp"
#include "collectives/communicator/flush_output.hpp"
#include "collectives/communicator/state.hpp"
#include "runtime/base/deadline.hpp"

#include <utility>
#include <vector>

/// Every collective becomes a CollectiveCall, which is run or started. Only the names of operations
/// differ; their arguments are treated alike.
namespace dlaunch {

using algorithms::Offsets;
using algorithms::put;
using algorithms::RankParts;
using transport::Op;

namespace {

constexpr int no_root = -1;

// The calls by their arguments, for both their forms; the operation stays a constant.

[[gnu::always_inline]] inline CollectiveCall moving(Op op, const Options& options,
                                                    const ConstTensorView& in,
                                                    const TensorView& out, int root = no_root,
                                                    std::span<const std::size_t> counts = {},
                                                    std::span<const std::size_t> out_counts = {}) {
  return {op, options, in, out, root, nullptr, counts, out_counts};
}
[[gnu::always_inline]] inline CollectiveCall reducing(
    Op op, const ReduceOptions& options, const ConstTensorView& in, const TensorView& out,
    const Reduction& reduction, int root = no_root, std::span<const std::size_t> counts = {}) {
  return {op, options, in, out, root, &reduction, counts, {}, options.truncate_mean};
}
CollectiveCall reducing_apart(Op op, const ReduceOptions& options, const ConstTensorView& in,
                              const TensorView& out, const Reduction& reduction) {
  CollectiveCall what = reducing(op, options, in, out, reduction);
  what.has_in = true;
  return what;
}
CollectiveCall reading(std::span<const ConstTensorView> views, CollectiveCall what) {
  what.is_list = true;
  what.ins = views;
  return what;
}
CollectiveCall writing(std::span<const TensorView> views, CollectiveCall what) {
  what.is_list = true;
  what.outs = views;
  return what;
}

template <class View>
std::vector<std::size_t> counts_of(std::span<const View> views) {
  std::vector<std::size_t> counts;
  for (const View& view : views) counts.push_back(view.count);
  return counts;
}

/// The first view gives the type and place of all.
CollectiveCall exchanging(std::span<const ConstTensorView> in, std::span<const TensorView> out,
                          std::span<const std::size_t> in_counts,
                          std::span<const std::size_t> out_counts, const Options& options) {
  ConstTensorView kind;
  if (!in.empty()) kind = {nullptr, 0, in[0].dtype, in[0].place};
  return writing(out, reading(in, moving(Op::all_to_all_v, options, kind, {}, no_root, in_counts,
                                         out_counts)));
}

}  // namespace

/// The buffers are contiguous bytes from here on. A buffer that this rank does not use is empty.
[[gnu::always_inline]] inline void Communicator::State::execute(Op op, Call& call,
                                                                const CollectiveCall& what) {
  const bool is_root = call.rank() == what.root;
  // If the operation has one buffer, the other stays empty at compile time.
  const Packed packed(shape_of(op).buffers == Buffers::one ? ConstTensorView() : what.in);
  const Unpacked unpacked(what.out, shape_of(op).buffers == Buffers::one);
  const BytesView in = packed.bytes();
  const std::span<std::byte> out = unpacked.bytes();
  const auto ranks = static_cast<std::size_t>(call.size());
  switch (op) {
    case Op::barrier:
      if (what.ordered_output && membership) {
        membership->drain_output(deadline_after(timeout_of(what.options)));
      }
      algorithms::barrier(call.ranks());
      break;
    case Op::broadcast:
      algorithms::broadcast(call.ranks(), out, what.root);
      if (is_root) return;
      break;
    case Op::reduce:
      algorithms::reduce(call.ranks(), in, out.data(), what.root, reducer_for(op, call, what));
      break;
    case Op::all_reduce:
      algorithms::all_reduce(call.ranks(), out, reducer_for(op, call, what));
      break;
    case Op::all_gather:
    case Op::all_gather_v: {
      const Offsets offsets = parts_of(op, call, what);
      const UnpackedList views(shape_of(op).has_counts ? what.outs : std::span<const TensorView>());
      const RankParts parts(out.data(), offsets, views.places());
      put(parts.begin(call.rank()), in.data(), in.size());
      algorithms::all_gather(call.ranks(), parts);
      views.commit();
      break;
    }
    case Op::gather:
      algorithms::gather(call.ranks(), in, out.data(), what.root);
      break;
    case Op::gather_v: {
      const Offsets offsets = is_root ? parts_of(op, call, what) : Offsets{};
      const UnpackedList views(what.outs);
      algorithms::gather_v(call.ranks(), in, {out.data(), offsets, views.places()}, what.root);
      views.commit();
      break;
    }
    case Op::scatter:
      algorithms::scatter(call.ranks(), in.data(), out, what.root);
      break;
    case Op::scatter_v: {
      const Offsets offsets = is_root ? parts_of(op, call, what) : Offsets{};
      const PackedList views(what.ins);
      algorithms::scatter_v(call.ranks(), {in.data(), offsets, views.places()}, out, what.root);
      break;
    }
    case Op::reduce_scatter:
    case Op::reduce_scatter_v: {
      const Offsets offsets = parts_of(op, call, what);
      const PackedList views(shape_of(op).has_counts ? what.ins
                                                     : std::span<const ConstTensorView>());
      algorithms::reduce_scatter(call.ranks(), {in.data(), offsets, views.places()}, out.data(),
                                 reducer_for(op, call, what));
      break;
    }
    case Op::all_to_all:
      algorithms::all_to_all(call.ranks(), in.data(), out.data(), in.size() / ranks);
      break;
    case Op::all_to_all_v: {
      const Offsets in_parts = parts_of(op, call, what);
      const Offsets out_parts = algorithms::parts_of(what.out_counts, size_of(what.in.dtype));
      const PackedList ins(what.ins);
      const UnpackedList outs(what.outs);
      algorithms::all_to_all_v(call.ranks(), {in.data(), in_parts, ins.places()},
                               {out.data(), out_parts, outs.places()});
      outs.commit();
      break;
    }
    case Op::scan:
      algorithms::scan(call.ranks(), in, out.data(), reducer_for(op, call, what), call.rank() + 1);
      break;
    case Op::exscan:
      algorithms::scan(call.ranks(), in, out.data(), reducer_for(op, call, what), call.rank());
      if (call.rank() == 0) return;  // No rank is before it.
      break;
    case Op::split:
    case Op::group:
    case Op::duplicate:
    case Op::revoke:
    case Op::agree:
    case Op::shrink:
    case Op::broadcast_object:
    case Op::all_gather_object:
    case Op::all_reduce_object:
    case Op::gather_object:
    case Op::scatter_object:
    case Op::send:
    case Op::recv:
    case Op::probe:
      break;  // These are no CollectiveCalls.
  }
  unpacked.commit();
}

/// An all_reduce whose result goes to another buffer than its input.
void Communicator::State::all_reduce_apart(Call& call, const CollectiveCall& what) {
  check_both(call, what);
  const Packed packed(what.in);
  const Unpacked unpacked(what.out);
  algorithms::all_reduce(call.ranks(), packed.bytes(), unpacked.bytes().data(),
                         reducer_for(Op::all_reduce, call, what));
  unpacked.commit();
}

template <bool is_settled>
[[gnu::always_inline]] inline void Communicator::State::make(Op op, const CollectiveCall& what) {
  auto print = fingerprint_of(op, what);
  const bool is_special = print.argument != 0;
  const auto body = [&](Call & call) __attribute__((always_inline)) {
    if (is_special) [[unlikely]]
      call.explain({.reduction = what.reduction, .counts = what.counts});
    if constexpr (!is_settled) {
      if (is_special) [[unlikely]]
        check_elements(call, what);
      if (op == Op::all_reduce && what.has_in) return all_reduce_apart(call, what);
    }
    check(op, call, what);
    execute(op, call, what);
  };
  if (transport::is_rooted(op)) return rooted(print, what.options, body);
  count_and_run<is_settled>(print, what.options, body);
}

/// A body for each operation, in which nothing of the others is left.
template <Op op>
[[gnu::noinline]] void Communicator::State::make_of(const CollectiveCall& what) {
  make(op, what);
}

/// The search vanishes if the operation is a constant.
[[gnu::always_inline]] inline void Communicator::State::make_by(Op op, const CollectiveCall& what) {
  const auto make_one = [&]<std::size_t... row>(std::index_sequence<row...>)
      __attribute__((always_inline)) {
    static_cast<void>(((shapes[row].op == op && (make_of<shapes[row].op>(what), true)) || ...));
  };
  make_one(std::make_index_sequence<shapes.size()>());
}

void Communicator::State::make(const CollectiveCall& what) { make_by(what.op, what); }

[[gnu::always_inline]] inline void Communicator::State::run(CollectiveCall&& what) {
  // Copied while it is a constant: after a read of another thread's data the compiler no longer
  // knows it.
  const Op op = what.op;
  what.forget_unused(group.rank);
  what.traffic = traffic;
  if (what.device() >= 0) [[unlikely]]
    return run_on_device(device::request(what), what.options);
  make_by(op, what);
}

void Communicator::prepare_device(int device, const Options& options) {
  Options now = options;
  now.cuda_stream = nullptr;
  state_->run_on_device(device::barrier(device, nullptr), now);
}

void Communicator::barrier(const BarrierOptions& options) {
  if (options.cuda_stream != nullptr) {
    return state_->run_on_device(state_->barrier_on_device(), options);
  }
  if (options.ordered_output) flush_output();
  state_->run({.op = Op::barrier, .options = options, .ordered_output = options.ordered_output});
}

/// It is not concerned with output that is printed after it was started.
Work Communicator::start_barrier(const BarrierOptions& options) {
  if (options.cuda_stream != nullptr) {
    return state_->start_on_device(state_->barrier_on_device(), options);
  }
  if (options.ordered_output) flush_output();
  return state_->start(
      {.op = Op::barrier, .options = options, .ordered_output = options.ordered_output});
}

void Communicator::all_reduce(const TensorView& inout, const Reduction& reduction,
                              const ReduceOptions& options) {
  // Programs wait most for small all_reduces, so most of these have a body of their own here.
  const bool is_settled = state_->is_settled();
  if (!is_settled || !inout.place.is_host() || !is_plain(reduction)) [[unlikely]] {
    return state_->run(reducing(Op::all_reduce, options, {}, inout, reduction));
  }
  state_->make<true>(
      Op::all_reduce,
      {Op::all_reduce, options, {}, inout, no_root, &reduction, {}, {}, options.truncate_mean});
}
Work Communicator::start_all_reduce(const TensorView& inout, const Reduction& reduction,
                                    const ReduceOptions& options) {
  return state_->start(reducing(Op::all_reduce, options, {}, inout, reduction));
}

void Communicator::all_reduce_into(const ConstTensorView& in, const TensorView& out,
                                   const Reduction& reduction, const ReduceOptions& options) {
  state_->run(reducing_apart(Op::all_reduce, options, in, out, reduction));
}
Work Communicator::start_all_reduce_into(const ConstTensorView& in, const TensorView& out,
                                         const Reduction& reduction, const ReduceOptions& options) {
  return state_->start(reducing_apart(Op::all_reduce, options, in, out, reduction));
}

void Communicator::broadcast(const TensorView& inout, int root, const Options& options) {
  state_->run(moving(Op::broadcast, options, {}, inout, root));
}
Work Communicator::start_broadcast(const TensorView& inout, int root, const Options& options) {
  return state_->start(moving(Op::broadcast, options, {}, inout, root));
}

void Communicator::reduce(const ConstTensorView& in, const TensorView& out, int root,
                          const Reduction& reduction, const ReduceOptions& options) {
  state_->run(reducing(Op::reduce, options, in, out, reduction, root));
}
Work Communicator::start_reduce(const ConstTensorView& in, const TensorView& out, int root,
                                const Reduction& reduction, const ReduceOptions& options) {
  return state_->start(reducing(Op::reduce, options, in, out, reduction, root));
}

void Communicator::all_gather(const ConstTensorView& in, const TensorView& out,
                              const Options& options) {
  state_->run(moving(Op::all_gather, options, in, out));
}
Work Communicator::start_all_gather(const ConstTensorView& in, const TensorView& out,
                                    const Options& options) {
  return state_->start(moving(Op::all_gather, options, in, out));
}

void Communicator::all_gather_v(const ConstTensorView& in, const TensorView& out,
                                std::span<const std::size_t> counts, const Options& options) {
  state_->run(moving(Op::all_gather_v, options, in, out, no_root, counts));
}
Work Communicator::start_all_gather_v(const ConstTensorView& in, const TensorView& out,
                                      std::span<const std::size_t> counts, const Options& options) {
  return state_->start(moving(Op::all_gather_v, options, in, out, no_root, counts));
}

void Communicator::all_gather_list(const ConstTensorView& in, std::span<const TensorView> out,
                                   const Options& options) {
  state_->run(writing(out, moving(Op::all_gather_v, options, in, {}, no_root, counts_of(out))));
}
Work Communicator::start_all_gather_list(const ConstTensorView& in, std::span<const TensorView> out,
                                         const Options& options) {
  return state_->start(
      writing(out, moving(Op::all_gather_v, options, in, {}, no_root, counts_of(out))));
}

void Communicator::gather(const ConstTensorView& in, const TensorView& out, int root,
                          const Options& options) {
  state_->run(moving(Op::gather, options, in, out, root));
}
Work Communicator::start_gather(const ConstTensorView& in, const TensorView& out, int root,
                                const Options& options) {
  return state_->start(moving(Op::gather, options, in, out, root));
}

void Communicator::gather_v(const ConstTensorView& in, const TensorView& out,
                            std::span<const std::size_t> counts, int root, const Options& options) {
  state_->run(moving(Op::gather_v, options, in, out, root, counts));
}
Work Communicator::start_gather_v(const ConstTensorView& in, const TensorView& out,
                                  std::span<const std::size_t> counts, int root,
                                  const Options& options) {
  return state_->start(moving(Op::gather_v, options, in, out, root, counts));
}

void Communicator::gather_list(const ConstTensorView& in, std::span<const TensorView> out, int root,
                               const Options& options) {
  state_->run(writing(out, moving(Op::gather_v, options, in, {}, root, counts_of(out))));
}
Work Communicator::start_gather_list(const ConstTensorView& in, std::span<const TensorView> out,
                                     int root, const Options& options) {
  return state_->start(writing(out, moving(Op::gather_v, options, in, {}, root, counts_of(out))));
}

void Communicator::scatter(const ConstTensorView& in, const TensorView& out, int root,
                           const Options& options) {
  state_->run(moving(Op::scatter, options, in, out, root));
}
Work Communicator::start_scatter(const ConstTensorView& in, const TensorView& out, int root,
                                 const Options& options) {
  return state_->start(moving(Op::scatter, options, in, out, root));
}

void Communicator::scatter_v(const ConstTensorView& in, const TensorView& out,
                             std::span<const std::size_t> counts, int root,
                             const Options& options) {
  state_->run(moving(Op::scatter_v, options, in, out, root, counts));
}
Work Communicator::start_scatter_v(const ConstTensorView& in, const TensorView& out,
                                   std::span<const std::size_t> counts, int root,
                                   const Options& options) {
  return state_->start(moving(Op::scatter_v, options, in, out, root, counts));
}

void Communicator::scatter_list(std::span<const ConstTensorView> in, const TensorView& out,
                                int root, const Options& options) {
  state_->run(reading(in, moving(Op::scatter_v, options, {}, out, root, counts_of(in))));
}
Work Communicator::start_scatter_list(std::span<const ConstTensorView> in, const TensorView& out,
                                      int root, const Options& options) {
  return state_->start(reading(in, moving(Op::scatter_v, options, {}, out, root, counts_of(in))));
}

void Communicator::reduce_scatter(const ConstTensorView& in, const TensorView& out,
                                  const Reduction& reduction, const ReduceOptions& options) {
  state_->run(reducing(Op::reduce_scatter, options, in, out, reduction));
}
Work Communicator::start_reduce_scatter(const ConstTensorView& in, const TensorView& out,
                                        const Reduction& reduction, const ReduceOptions& options) {
  return state_->start(reducing(Op::reduce_scatter, options, in, out, reduction));
}

void Communicator::reduce_scatter_v(const ConstTensorView& in, const TensorView& out,
                                    std::span<const std::size_t> counts, const Reduction& reduction,
                                    const ReduceOptions& options) {
  state_->run(reducing(Op::reduce_scatter_v, options, in, out, reduction, no_root, counts));
}
Work Communicator::start_reduce_scatter_v(const ConstTensorView& in, const TensorView& out,
                                          std::span<const std::size_t> counts,
                                          const Reduction& reduction,
                                          const ReduceOptions& options) {
  return state_->start(
      reducing(Op::reduce_scatter_v, options, in, out, reduction, no_root, counts));
}

void Communicator::reduce_scatter_list(std::span<const ConstTensorView> in, const TensorView& out,
                                       const Reduction& reduction, const ReduceOptions& options) {
  state_->run(reading(
      in, reducing(Op::reduce_scatter_v, options, {}, out, reduction, no_root, counts_of(in))));
}
Work Communicator::start_reduce_scatter_list(std::span<const ConstTensorView> in,
                                             const TensorView& out, const Reduction& reduction,
                                             const ReduceOptions& options) {
  return state_->start(reading(
      in, reducing(Op::reduce_scatter_v, options, {}, out, reduction, no_root, counts_of(in))));
}

void Communicator::all_to_all(const ConstTensorView& in, const TensorView& out,
                              const Options& options) {
  state_->run(moving(Op::all_to_all, options, in, out));
}
Work Communicator::start_all_to_all(const ConstTensorView& in, const TensorView& out,
                                    const Options& options) {
  return state_->start(moving(Op::all_to_all, options, in, out));
}

void Communicator::all_to_all_v(const ConstTensorView& in, std::span<const std::size_t> in_counts,
                                const TensorView& out, std::span<const std::size_t> out_counts,
                                const Options& options) {
  state_->run(moving(Op::all_to_all_v, options, in, out, no_root, in_counts, out_counts));
}
Work Communicator::start_all_to_all_v(const ConstTensorView& in,
                                      std::span<const std::size_t> in_counts, const TensorView& out,
                                      std::span<const std::size_t> out_counts,
                                      const Options& options) {
  return state_->start(moving(Op::all_to_all_v, options, in, out, no_root, in_counts, out_counts));
}

void Communicator::all_to_all_list(std::span<const ConstTensorView> in,
                                   std::span<const TensorView> out, const Options& options) {
  state_->run(exchanging(in, out, counts_of(in), counts_of(out), options));
}
Work Communicator::start_all_to_all_list(std::span<const ConstTensorView> in,
                                         std::span<const TensorView> out, const Options& options) {
  return state_->start(exchanging(in, out, counts_of(in), counts_of(out), options));
}

void Communicator::scan(const ConstTensorView& in, const TensorView& out,
                        const Reduction& reduction, const ReduceOptions& options) {
  state_->run(reducing(Op::scan, options, in, out, reduction));
}
Work Communicator::start_scan(const ConstTensorView& in, const TensorView& out,
                              const Reduction& reduction, const ReduceOptions& options) {
  return state_->start(reducing(Op::scan, options, in, out, reduction));
}

void Communicator::exscan(const ConstTensorView& in, const TensorView& out,
                          const Reduction& reduction, const ReduceOptions& options) {
  state_->run(reducing(Op::exscan, options, in, out, reduction));
}
Work Communicator::start_exscan(const ConstTensorView& in, const TensorView& out,
                                const Reduction& reduction, const ReduceOptions& options) {
  return state_->start(reducing(Op::exscan, options, in, out, reduction));
}

}  // namespace dlaunch
