#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/select/put.hpp"
#include "collectives/api/buffers.hpp"
#include "collectives/call/collective_call.hpp"
#include "collectives/communicator/flush_output.hpp"
#include "collectives/communicator/state.hpp"
#include "runtime/base/deadline.hpp"

#include <utility>

/// Every collective is a CollectiveCall, which is run, or started. What a call's operation is
/// called differs; what is done with its arguments does not.
namespace dlaunch {

using algorithms::Offsets;
using algorithms::put;
using transport::Op;

namespace {

constexpr int no_root = -1;

}  // namespace

/// The buffers are contiguous bytes from here on. A buffer that this rank does not use is empty.
[[gnu::always_inline]] inline void Communicator::State::execute(Op op, Call& call,
                                                                const CollectiveCall& what) {
  const bool is_root = call.rank() == what.root;
  // With one buffer, all of the other is known.
  const Packed packed(shape_of(op).buffers == Buffers::one ? ConstTensorView() : what.in);
  const Unpacked unpacked(what.out, shape_of(op).buffers == Buffers::one);
  const BytesView in = packed.bytes();
  const std::span<std::byte> out = unpacked.bytes();
  const auto ranks = static_cast<std::size_t>(call.size());
  switch (op) {
    case Op::barrier:
      if (what.ordered_output && membership) {
        membership->drain_output(deadline_after(timeout_of(*what.options)));
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
      const Offsets parts = parts_of(op, call, what);
      put(out.data() + begin_of_part(parts, call.rank()), in.data(), in.size());
      algorithms::all_gather(call.ranks(), out.data(), parts);
      break;
    }
    case Op::gather:
      algorithms::gather(call.ranks(), in, out.data(), what.root);
      break;
    case Op::gather_v:
      algorithms::gather_v(call.ranks(), in, out.data(),
                           is_root ? parts_of(op, call, what) : Offsets{}, what.root);
      break;
    case Op::scatter:
      algorithms::scatter(call.ranks(), in.data(), out, what.root);
      break;
    case Op::scatter_v:
      algorithms::scatter_v(call.ranks(), in.data(), out,
                            is_root ? parts_of(op, call, what) : Offsets{}, what.root);
      break;
    case Op::reduce_scatter:
    case Op::reduce_scatter_v:
      algorithms::reduce_scatter(call.ranks(), in, out.data(), parts_of(op, call, what),
                                 reducer_for(op, call, what));
      break;
    case Op::all_to_all:
      algorithms::all_to_all(call.ranks(), in.data(), out.data(), in.size() / ranks);
      break;
    case Op::all_to_all_v:
      algorithms::all_to_all_v(
          call.ranks(), in.data(), parts_of(op, call, what), out.data(),
          algorithms::parts_of(what.out_counts, size_of(what.compared().dtype)));
      break;
    case Op::scan:
      algorithms::scan(call.ranks(), in, out.data(), reducer_for(op, call, what), call.rank() + 1);
      break;
    case Op::exscan:
      algorithms::scan(call.ranks(), in, out.data(), reducer_for(op, call, what), call.rank());
      if (call.rank() == 0) return;  // Nobody is before it.
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
      break;  // No CollectiveCall is made of them.
  }
  unpacked.commit();
}

template <bool is_settled>
[[gnu::always_inline]] inline void Communicator::State::make(Op op, const CollectiveCall& what) {
  auto print = fingerprint_of(op, what);
  const bool is_special = print.argument != 0;
  const auto body = [&](Call & call) __attribute__((always_inline)) {
    if (is_special) [[unlikely]]
      call.explain({.reduction = what.reduction, .counts = what.counts});
    check(op, call, what);
    execute(op, call, what);
  };
  if (transport::is_rooted(op)) return rooted(print, *what.options, body);
  count_and_run<is_settled>(print, *what.options, body);
}

/// A body for each operation, in which nothing of the others is left.
template <Op op>
[[gnu::noinline]] void Communicator::State::make_of(const CollectiveCall& what) {
  make(op, what);
}

/// Where the operation is a constant, nothing is left of the search.
[[gnu::always_inline]] inline void Communicator::State::make_by(Op op, const CollectiveCall& what) {
  const auto make_one = [&]<std::size_t... row>(std::index_sequence<row...>)
      __attribute__((always_inline)) {
    static_cast<void>(((shapes[row].op == op && (make_of<shapes[row].op>(what), true)) || ...));
  };
  make_one(std::make_index_sequence<shapes.size()>());
}

void Communicator::State::make(const CollectiveCall& what) { make_by(what.op, what); }

[[gnu::always_inline]] inline void Communicator::State::run(CollectiveCall&& what) {
  const Op op = what.op;  // A constant here, which it is not after another thread's word was read.
  what.forget_unused(group.rank);
  what.traffic = traffic;
  if (what.device() >= 0) [[unlikely]]
    return run_on_device(device::request(what), *what.options);
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
  const Options common = options;
  state_->run({.op = Op::barrier, .options = &common, .ordered_output = options.ordered_output});
}

/// Output that is printed after it was started is not its concern.
Work Communicator::start_barrier(const BarrierOptions& options) {
  if (options.cuda_stream != nullptr) {
    return state_->start_on_device(state_->barrier_on_device(), options);
  }
  if (options.ordered_output) flush_output();
  const Options common = options;
  return state_->start(
      {.op = Op::barrier, .options = &common, .ordered_output = options.ordered_output});
}

void Communicator::broadcast(TensorView inout, int root, const Options& options) {
  state_->run({Op::broadcast, &options, {}, inout, root});
}
Work Communicator::start_broadcast(TensorView inout, int root, const Options& options) {
  return state_->start({Op::broadcast, &options, {}, inout, root});
}

void Communicator::reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction,
                          const ReduceOptions& options) {
  const Options common = options;
  state_->run({Op::reduce, &common, in, out, root, &reduction, {}, {}, options.truncate_mean});
}
Work Communicator::start_reduce(ConstTensorView in, TensorView out, int root,
                                const Reduction& reduction, const ReduceOptions& options) {
  const Options common = options;
  return state_->start(
      {Op::reduce, &common, in, out, root, &reduction, {}, {}, options.truncate_mean});
}

void Communicator::all_reduce(TensorView inout, const Reduction& reduction,
                              const ReduceOptions& options) {
  // Programs wait for small ones more than for anything else: most have a body of their own here.
  const bool is_settled = state_->is_settled();
  if (!is_settled || !inout.place.is_host() || !is_plain(reduction)) [[unlikely]] {
    const Options common = options;
    return state_->run(
        {Op::all_reduce, &common, {}, inout, no_root, &reduction, {}, {}, options.truncate_mean});
  }
  const Options common = options;
  state_->make<true>(
      Op::all_reduce,
      {Op::all_reduce, &common, {}, inout, no_root, &reduction, {}, {}, options.truncate_mean});
}
Work Communicator::start_all_reduce(TensorView inout, const Reduction& reduction,
                                    const ReduceOptions& options) {
  const Options common = options;
  return state_->start(
      {Op::all_reduce, &common, {}, inout, no_root, &reduction, {}, {}, options.truncate_mean});
}

void Communicator::all_gather(ConstTensorView in, TensorView out, const Options& options) {
  state_->run({Op::all_gather, &options, in, out});
}
Work Communicator::start_all_gather(ConstTensorView in, TensorView out, const Options& options) {
  return state_->start({Op::all_gather, &options, in, out});
}

void Communicator::all_gather_v(ConstTensorView in, TensorView out,
                                std::span<const std::size_t> counts, const Options& options) {
  state_->run({Op::all_gather_v, &options, in, out, no_root, nullptr, counts});
}
Work Communicator::start_all_gather_v(ConstTensorView in, TensorView out,
                                      std::span<const std::size_t> counts, const Options& options) {
  return state_->start({Op::all_gather_v, &options, in, out, no_root, nullptr, counts});
}

void Communicator::gather(ConstTensorView in, TensorView out, int root, const Options& options) {
  state_->run({Op::gather, &options, in, out, root});
}
Work Communicator::start_gather(ConstTensorView in, TensorView out, int root,
                                const Options& options) {
  return state_->start({Op::gather, &options, in, out, root});
}

void Communicator::gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                            int root, const Options& options) {
  state_->run({Op::gather_v, &options, in, out, root, nullptr, counts});
}
Work Communicator::start_gather_v(ConstTensorView in, TensorView out,
                                  std::span<const std::size_t> counts, int root,
                                  const Options& options) {
  return state_->start({Op::gather_v, &options, in, out, root, nullptr, counts});
}

void Communicator::scatter(ConstTensorView in, TensorView out, int root, const Options& options) {
  state_->run({Op::scatter, &options, in, out, root});
}
Work Communicator::start_scatter(ConstTensorView in, TensorView out, int root,
                                 const Options& options) {
  return state_->start({Op::scatter, &options, in, out, root});
}

void Communicator::scatter_v(ConstTensorView in, TensorView out,
                             std::span<const std::size_t> counts, int root,
                             const Options& options) {
  state_->run({Op::scatter_v, &options, in, out, root, nullptr, counts});
}
Work Communicator::start_scatter_v(ConstTensorView in, TensorView out,
                                   std::span<const std::size_t> counts, int root,
                                   const Options& options) {
  return state_->start({Op::scatter_v, &options, in, out, root, nullptr, counts});
}

void Communicator::reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction,
                                  const ReduceOptions& options) {
  const Options common = options;
  state_->run(
      {Op::reduce_scatter, &common, in, out, no_root, &reduction, {}, {}, options.truncate_mean});
}
Work Communicator::start_reduce_scatter(ConstTensorView in, TensorView out,
                                        const Reduction& reduction, const ReduceOptions& options) {
  const Options common = options;
  return state_->start(
      {Op::reduce_scatter, &common, in, out, no_root, &reduction, {}, {}, options.truncate_mean});
}

void Communicator::reduce_scatter_v(ConstTensorView in, TensorView out,
                                    std::span<const std::size_t> counts, const Reduction& reduction,
                                    const ReduceOptions& options) {
  const Options common = options;
  state_->run({Op::reduce_scatter_v,
               &common,
               in,
               out,
               no_root,
               &reduction,
               counts,
               {},
               options.truncate_mean});
}
Work Communicator::start_reduce_scatter_v(ConstTensorView in, TensorView out,
                                          std::span<const std::size_t> counts,
                                          const Reduction& reduction,
                                          const ReduceOptions& options) {
  const Options common = options;
  return state_->start({Op::reduce_scatter_v,
                        &common,
                        in,
                        out,
                        no_root,
                        &reduction,
                        counts,
                        {},
                        options.truncate_mean});
}

void Communicator::all_to_all(ConstTensorView in, TensorView out, const Options& options) {
  state_->run({Op::all_to_all, &options, in, out});
}
Work Communicator::start_all_to_all(ConstTensorView in, TensorView out, const Options& options) {
  return state_->start({Op::all_to_all, &options, in, out});
}

void Communicator::all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts,
                                TensorView out, std::span<const std::size_t> out_counts,
                                const Options& options) {
  state_->run({Op::all_to_all_v, &options, in, out, no_root, nullptr, in_counts, out_counts});
}
Work Communicator::start_all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts,
                                      TensorView out, std::span<const std::size_t> out_counts,
                                      const Options& options) {
  return state_->start(
      {Op::all_to_all_v, &options, in, out, no_root, nullptr, in_counts, out_counts});
}

void Communicator::scan(ConstTensorView in, TensorView out, const Reduction& reduction,
                        const ReduceOptions& options) {
  const Options common = options;
  state_->run({Op::scan, &common, in, out, no_root, &reduction, {}, {}, options.truncate_mean});
}
Work Communicator::start_scan(ConstTensorView in, TensorView out, const Reduction& reduction,
                              const ReduceOptions& options) {
  const Options common = options;
  return state_->start(
      {Op::scan, &common, in, out, no_root, &reduction, {}, {}, options.truncate_mean});
}

void Communicator::exscan(ConstTensorView in, TensorView out, const Reduction& reduction,
                          const ReduceOptions& options) {
  const Options common = options;
  state_->run({Op::exscan, &common, in, out, no_root, &reduction, {}, {}, options.truncate_mean});
}
Work Communicator::start_exscan(ConstTensorView in, TensorView out, const Reduction& reduction,
                                const ReduceOptions& options) {
  const Options common = options;
  return state_->start(
      {Op::exscan, &common, in, out, no_root, &reduction, {}, {}, options.truncate_mean});
}

}  // namespace dlaunch
