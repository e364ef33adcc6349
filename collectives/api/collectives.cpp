#include "collectives/api/buffers.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/call/operations.hpp"
#include "collectives/communicator/flush_output.hpp"
#include "collectives/communicator/state.hpp"
#include "runtime/base/deadline.hpp"

#include <cstring>
#include <functional>

namespace dlaunch {
namespace {

using algorithms::Offsets;
using transport::Fingerprint;
using transport::Op;

std::uint64_t hash_counts(std::span<const std::size_t> counts) {
  return transport::hash_bytes(counts.data(), counts.size_bytes());
}

Fingerprint fingerprint(Op op, DType dtype, std::uint64_t count, int root = -1) {
  Fingerprint call;
  call.op = op;
  call.dtype = dtype;
  call.count = count;
  call.root = root;
  return call;
}

std::size_t product(int ranks, std::size_t each) { return static_cast<std::size_t>(ranks) * each; }

/// By an operation that is told where ranks do not agree on it.
template <class State>
[[gnu::cold, gnu::noinline]] void reduce_specially(State& state, Fingerprint print,
                                                   const Reduction& reduction,
                                                   const Options& options,
                                                   const std::function<void(Call&)>& body) {
  print.argument = hash_of_special(reduction);
  const std::function<void(Call&)> explained = [&](Call& call) {
    call.explain({.reduction = &reduction});
    body(call);
  };
  if (transport::is_rooted(print.op)) return state.rooted(print, options, explained);
  state.collective(print, options, explained);
}

enum class Rooted { no, yes };

/// A collective that reduces. A plain one takes no instruction more for the others.
template <Rooted rooted = Rooted::no, class State, class Body>
[[gnu::always_inline]] inline void reduce_by(State& state, Fingerprint print,
                                             const Reduction& reduction, const Options& options,
                                             const Body& body) {
  print.reduce = reduction.op();
  if (!is_plain(reduction)) [[unlikely]]
    return reduce_specially(state, print, reduction, options, std::function<void(Call&)>(body));
  if constexpr (rooted == Rooted::yes) return state.rooted(print, options, body);
  state.collective(print, options, body);
}

void copy(std::span<std::byte> to, BytesView from) {
  if (!from.empty() && to.data() != from.data()) std::memmove(to.data(), from.data(), from.size());
}

[[gnu::always_inline]] inline Reducer reducer_for(const Call& call, const Reduction& reduction,
                                                  DType dtype, const Options& options) {
  try {
    return Reducer(reduction, dtype, options.truncate_mean);
  } catch (const Error& senseless) {
    refuse(call,
           Reducer::objection(reduction, dtype, options.truncate_mean).value_or(senseless.what()));
  }
}

}  // namespace

void Communicator::prepare_device(int device, const Options& options) {
  Options now = options;
  now.cuda_stream = nullptr;
  state_->run_on_device(device::barrier(device, nullptr), now);
}

void Communicator::barrier(const Options& options) {
  if (options.cuda_stream != nullptr) {
    return state_->run_on_device(state_->barrier_on_device(), options);
  }
  if (options.ordered_output) flush_output();
  state_->barrier(options);
}

void Communicator::State::barrier(const Options& options) {
  collective(fingerprint(Op::barrier, {}, 0), options, [&](Call& call) {
    if (options.ordered_output && membership) {
      membership->drain_output(deadline_after(timeout_of(options)));
    }
    operations::barrier(call);
  });
}

void Communicator::broadcast(TensorView inout, int root, const Options& options) {
  if (device::any_on_device({inout})) {
    return state_->run_on_device(device::broadcast(inout, root), options);
  }
  state_->rooted(fingerprint(Op::broadcast, inout.dtype, inout.count, root), options,
                 [&](Call& call) {
                   check_root(call, root);
                   check_view(call, inout, "inout");
                   const Unpacked data(inout, true);
                   operations::broadcast(call, data.bytes(), root);
                   if (call.rank() != root) data.commit();
                 });
}

void Communicator::reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction,
                          const Options& options) {
  if (device::is_on_device(rank() == root, in, out)) {
    return state_->run_on_device(device::reduce(in, out, root, reduction, options), options);
  }
  reduce_by<Rooted::yes>(*state_, fingerprint(Op::reduce, in.dtype, in.count, root), reduction,
                         options, [&](Call& call) {
                           check_root(call, root);
                           check_view(call, in, "in");
                           const Reducer reducer = reducer_for(call, reduction, in.dtype, options);
                           const bool is_root = call.rank() == root;
                           if (is_root) {
                             check_same(call, in, out, in.count, "in", "out");
                             check_apart_or_same(call, in, out);
                           }
                           const Packed data(in);
                           const Unpacked result(is_root ? out : TensorView());
                           operations::reduce(call, data.bytes(), result.bytes().data(), root,
                                              reducer);
                           result.commit();
                         });
}

void Communicator::all_reduce(TensorView inout, const Reduction& reduction,
                              const Options& options) {
  if (device::any_on_device({inout})) {
    return state_->run_on_device(device::all_reduce(inout, reduction, options), options);
  }
  reduce_by(*state_, fingerprint(Op::all_reduce, inout.dtype, inout.count), reduction, options,
            [&](Call& call) {
              check_view(call, inout, "inout");
              const Reducer reducer = reducer_for(call, reduction, inout.dtype, options);
              const Unpacked data(inout, true);
              operations::all_reduce(call, data.bytes(), reducer);
              data.commit();
            });
}

void Communicator::all_gather(ConstTensorView in, TensorView out, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->run_on_device(device::all_gather(in, out), options);
  }
  state_->collective(fingerprint(Op::all_gather, in.dtype, in.count), options, [&](Call& call) {
    check_view(call, in, "in");
    check_same(call, in, out, parts_together(call.size(), in.count), "in", "out");
    check_in_is_part(call, in, out, elements_before(call, in.count));
    const Packed mine(in);
    const Unpacked all(out);
    const std::size_t each = in.bytes();
    copy(all.bytes().subspan(product(call.rank(), each), each), mine.bytes());
    operations::all_gather(call, all.bytes().data(), each);
    all.commit();
  });
}

void Communicator::all_gather_v(ConstTensorView in, TensorView out,
                                std::span<const std::size_t> counts, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->run_on_device(device::all_gather_v(in, out, counts), options);
  }
  Fingerprint print = fingerprint(Op::all_gather_v, in.dtype, transport::counts_vary);
  print.argument = hash_counts(counts);
  state_->collective(print, options, [&](Call& call) {
    call.explain({.counts = counts});
    check_view(call, in, "in");
    check_same(call, in, out, check_counts(call, counts, in.count, "in"), "in", "out");
    check_in_is_part(call, in, out, elements_before(call, counts));
    const Packed mine(in);
    const Unpacked all(out);
    const Offsets parts = algorithms::parts_of(counts, size_of(in.dtype));
    copy(all.bytes().subspan(parts[static_cast<std::size_t>(call.rank())], in.bytes()),
         mine.bytes());
    operations::all_gather_v(call, all.bytes().data(), parts);
    all.commit();
  });
}

void Communicator::gather(ConstTensorView in, TensorView out, int root, const Options& options) {
  if (device::is_on_device(rank() == root, in, out)) {
    return state_->run_on_device(device::gather(in, out, root), options);
  }
  state_->rooted(fingerprint(Op::gather, in.dtype, in.count, root), options, [&](Call& call) {
    check_root(call, root);
    check_view(call, in, "in");
    const bool is_root = call.rank() == root;
    if (is_root) {
      check_same(call, in, out, parts_together(call.size(), in.count), "in", "out");
      check_in_is_part(call, in, out, elements_before(call, in.count));
    }
    const Packed mine(in);
    const Unpacked all(is_root ? out : TensorView());
    operations::gather(call, mine.bytes(), all.bytes().data(), root);
    all.commit();
  });
}

void Communicator::gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                            int root, const Options& options) {
  if (device::is_on_device(rank() == root, in, out)) {
    return state_->run_on_device(device::gather_v(in, out, counts, root), options);
  }
  state_->rooted(
      fingerprint(Op::gather_v, in.dtype, transport::counts_vary, root), options, [&](Call& call) {
        check_root(call, root);
        check_view(call, in, "in");
        const bool is_root = call.rank() == root;
        if (is_root) {
          check_same(call, in, out, check_counts(call, counts, in.count, "in"), "in", "out");
          check_in_is_part(call, in, out, elements_before(call, counts));
        }
        const Packed mine(in);
        const Unpacked all(is_root ? out : TensorView());
        operations::gather_v(call, mine.bytes(), all.bytes().data(),
                             is_root ? algorithms::parts_of(counts, size_of(in.dtype)) : Offsets{},
                             root);
        all.commit();
      });
}

void Communicator::scatter(ConstTensorView in, TensorView out, int root, const Options& options) {
  if (device::is_on_device(rank() == root, out, in)) {
    return state_->run_on_device(device::scatter(in, out, root), options);
  }
  state_->rooted(fingerprint(Op::scatter, out.dtype, out.count, root), options, [&](Call& call) {
    check_root(call, root);
    check_view(call, out, "out");
    const bool is_root = call.rank() == root;
    if (is_root) {
      check_same(call, out, in, parts_together(call.size(), out.count), "out", "in");
      check_out_is_part(call, in, out, elements_before(call, out.count));
    }
    const Packed all(is_root ? in : ConstTensorView());
    const Unpacked mine(out);
    operations::scatter(call, all.bytes().data(), mine.bytes(), root);
    mine.commit();
  });
}

void Communicator::scatter_v(ConstTensorView in, TensorView out,
                             std::span<const std::size_t> counts, int root,
                             const Options& options) {
  if (device::is_on_device(rank() == root, out, in)) {
    return state_->run_on_device(device::scatter_v(in, out, counts, root), options);
  }
  state_->rooted(
      fingerprint(Op::scatter_v, out.dtype, transport::counts_vary, root), options,
      [&](Call& call) {
        check_root(call, root);
        check_view(call, out, "out");
        const bool is_root = call.rank() == root;
        if (is_root) {
          check_same(call, out, in, check_counts(call, counts, out.count, "out"), "out", "in");
          check_out_is_part(call, in, out, elements_before(call, counts));
        }
        const Packed all(is_root ? in : ConstTensorView());
        const Unpacked mine(out);
        operations::scatter_v(
            call, all.bytes().data(), mine.bytes(),
            is_root ? algorithms::parts_of(counts, size_of(out.dtype)) : Offsets{}, root);
        mine.commit();
      });
}

void Communicator::reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction,
                                  const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->run_on_device(device::reduce_scatter(in, out, reduction, options), options);
  }
  reduce_by(*state_, fingerprint(Op::reduce_scatter, out.dtype, out.count), reduction, options,
            [&](Call& call) {
              check_view(call, out, "out");
              check_same(call, out, in, parts_together(call.size(), out.count), "out", "in");
              check_out_is_part(call, in, out, elements_before(call, out.count));
              const Reducer reducer = reducer_for(call, reduction, out.dtype, options);
              const Packed all(in);
              const Unpacked mine(out);
              operations::reduce_scatter(call, all.bytes(), mine.bytes().data(), out.bytes(),
                                         reducer);
              mine.commit();
            });
}

void Communicator::reduce_scatter_v(ConstTensorView in, TensorView out,
                                    std::span<const std::size_t> counts, const Reduction& reduction,
                                    const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->run_on_device(device::reduce_scatter_v(in, out, counts, reduction, options),
                                 options);
  }
  Fingerprint print = fingerprint(Op::reduce_scatter_v, out.dtype, transport::counts_vary);
  print.reduce = reduction.op();
  print.argument = hash_of(reduction) ^ hash_counts(counts);
  state_->collective(print, options, [&](Call& call) {
    call.explain({&reduction, counts});
    check_view(call, out, "out");
    check_same(call, out, in, check_counts(call, counts, out.count, "out"), "out", "in");
    check_out_is_part(call, in, out, elements_before(call, counts));
    const Reducer reducer = reducer_for(call, reduction, out.dtype, options);
    const Packed all(in);
    const Unpacked mine(out);
    operations::reduce_scatter_v(call, all.bytes(), mine.bytes().data(),
                                 algorithms::parts_of(counts, size_of(out.dtype)), reducer);
    mine.commit();
  });
}

void Communicator::all_to_all(ConstTensorView in, TensorView out, const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->run_on_device(device::all_to_all(in, out), options);
  }
  state_->collective(fingerprint(Op::all_to_all, in.dtype, in.count), options, [&](Call& call) {
    check_view(call, in, "in");
    check_same(call, in, out, in.count, "in", "out");
    check_apart(call, in, out);
    const auto ranks = static_cast<std::size_t>(call.size());
    require(call, in.count % ranks == 0, [&] {
      return std::string("'in' has " + std::to_string(in.count) + " elements, which are not " +
                         std::to_string(ranks) + " equal parts");
    });
    const Packed all(in);
    const Unpacked result(out);
    operations::all_to_all(call, all.bytes().data(), result.bytes().data(), in.bytes() / ranks);
    result.commit();
  });
}

void Communicator::all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts,
                                TensorView out, std::span<const std::size_t> out_counts,
                                const Options& options) {
  if (device::any_on_device({in, out})) {
    return state_->run_on_device(device::all_to_all_v(in, in_counts, out, out_counts), options);
  }
  state_->collective(
      fingerprint(Op::all_to_all_v, in.dtype, transport::counts_vary), options, [&](Call& call) {
        check_view(call, in, "in");
        const auto me = static_cast<std::size_t>(call.rank());
        require(call, in_counts.size() == out_counts.size() && me < in_counts.size(), [&] {
          return std::string("in_counts and out_counts have one entry for each rank");
        });
        const std::size_t all = check_counts(call, in_counts, in_counts[me], "in");
        require(call, in.count == all, [&] {
          return std::string("'in' has " + std::to_string(in.count) + " elements, in_counts say " +
                             std::to_string(all));
        });
        check_same(call, in, out, check_counts(call, out_counts, in_counts[me], "out"), "in",
                   "out");
        check_apart(call, in, out);
        const Packed data(in);
        const Unpacked result(out);
        operations::all_to_all_v(
            call, data.bytes().data(), algorithms::parts_of(in_counts, size_of(in.dtype)),
            result.bytes().data(), algorithms::parts_of(out_counts, size_of(in.dtype)));
        result.commit();
      });
}

}  // namespace dlaunch
