#include "collectives/algorithms/algorithms.hpp"
#include "collectives/buffers.hpp"
#include "collectives/checks.hpp"
#include "collectives/state.hpp"
#include "runtime/base/deadline.hpp"

#include <bit>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <numeric>

namespace dlaunch {
namespace {

using algorithms::Offsets;
using transport::Fingerprint;
using transport::Op;

std::uint64_t hash_counts(std::span<const std::size_t> counts) {
  return transport::hash_bytes(counts.data(), counts.size_bytes());
}

/// What else the ranks must have in common for their reductions to be the same.
std::uint64_t hash_of(const Reduction& reduction) {
  if (reduction.op() == ReduceOp::premul_sum) {
    return std::bit_cast<std::uint64_t>(reduction.factor());
  }
  return reduction.op() == ReduceOp::custom ? transport::hash_text(reduction.name()) : 0;
}

Fingerprint fingerprint(Op op, DType dtype, std::uint64_t count, int root = -1) {
  Fingerprint call;
  call.op = op;
  call.dtype = dtype;
  call.count = count;
  call.root = root;
  return call;
}

Fingerprint reducing(Op op, DType dtype, std::uint64_t count, const Reduction& reduction,
                     int root = -1) {
  Fingerprint call = fingerprint(op, dtype, count, root);
  call.reduce = reduction.op();
  call.argument = hash_of(reduction);
  return call;
}

std::size_t product(int ranks, std::size_t each) { return static_cast<std::size_t>(ranks) * each; }

void copy(std::span<std::byte> to, BytesView from) {
  if (!from.empty() && to.data() != from.data()) std::memmove(to.data(), from.data(), from.size());
}

/// What this process printed so far leaves it, and is read by the launcher.
void flush_output(const std::shared_ptr<Membership>& membership, Clock::time_point deadline) {
  std::cout.flush();
  std::clog.flush();
  // Not fflush(nullptr): it would wait for a thread that blocks in reading stdin.
  std::fflush(stdout);
  std::fflush(stderr);
  if (membership) membership->drain_output(deadline);
}

}  // namespace

void Communicator::barrier(const Options& options) {
  Fingerprint call;
  call.op = Op::barrier;
  state_->collective(call, options, [&](Call& mesh) {
    if (options.ordered_output) {
      flush_output(state_->membership, deadline_after(state_->timeout_of(options)));
    }
    algorithms::barrier_dissemination(mesh);
  });
}

void Communicator::broadcast(TensorView inout, int root, const Options& options) {
  state_->collective(fingerprint(Op::broadcast, inout.dtype, inout.count, root), options,
                     [&](Call& mesh) {
                       check_root(mesh, root);
                       check_view(mesh, inout);
                       const Unpacked data(inout, true);
                       algorithms::broadcast_binomial(mesh, data.bytes(), root);
                       if (mesh.rank() != root) data.commit();
                     });
}

void Communicator::reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction,
                          const Options& options) {
  state_->collective(reducing(Op::reduce, in.dtype, in.count, reduction, root), options,
                     [&](Call& mesh) {
                       check_root(mesh, root);
                       check_view(mesh, in);
                       const Folder fold(reduction, in.dtype, options.truncate_mean);
                       const bool is_root = mesh.rank() == root;
                       if (is_root) check_same(mesh, in, out, in.count);
                       const Packed data(in);
                       const Unpacked result(is_root ? out : TensorView());
                       algorithms::reduce(mesh, data.bytes(), result.bytes().data(), root, fold);
                       result.commit();
                     });
}

void Communicator::all_reduce(TensorView inout, const Reduction& reduction,
                              const Options& options) {
  state_->collective(reducing(Op::all_reduce, inout.dtype, inout.count, reduction), options,
                     [&](Call& mesh) {
                       check_view(mesh, inout);
                       const Folder fold(reduction, inout.dtype, options.truncate_mean);
                       const Unpacked data(inout, true);
                       algorithms::all_reduce(mesh, data.bytes(), fold);
                       data.commit();
                     });
}

void Communicator::all_gather(ConstTensorView in, TensorView out, const Options& options) {
  state_->collective(fingerprint(Op::all_gather, in.dtype, in.count), options, [&](Call& mesh) {
    check_view(mesh, in);
    check_same(mesh, in, out, product(mesh.size(), in.count));
    const Packed mine(in);
    const Unpacked all(out);
    const std::size_t each = in.bytes();
    copy(all.bytes().subspan(product(mesh.rank(), each), each), mine.bytes());
    algorithms::all_gather_ring(mesh, all.bytes().data(),
                                algorithms::equal_parts(mesh.size(), each));
    all.commit();
  });
}

void Communicator::all_gather_v(ConstTensorView in, TensorView out,
                                std::span<const std::size_t> counts, const Options& options) {
  Fingerprint call = fingerprint(Op::all_gather_v, in.dtype, transport::counts_vary);
  call.argument = hash_counts(counts);
  state_->collective(call, options, [&](Call& mesh) {
    check_view(mesh, in);
    check_same(mesh, in, out, check_counts(mesh, counts, in.count, "in"));
    const Packed mine(in);
    const Unpacked all(out);
    const Offsets parts = algorithms::parts_of(counts, size_of(in.dtype));
    copy(all.bytes().subspan(parts[static_cast<std::size_t>(mesh.rank())], in.bytes()),
         mine.bytes());
    algorithms::all_gather_ring(mesh, all.bytes().data(), parts);
    all.commit();
  });
}

void Communicator::gather(ConstTensorView in, TensorView out, int root, const Options& options) {
  state_->collective(fingerprint(Op::gather, in.dtype, in.count, root), options, [&](Call& mesh) {
    check_root(mesh, root);
    check_view(mesh, in);
    const bool is_root = mesh.rank() == root;
    if (is_root) check_same(mesh, in, out, product(mesh.size(), in.count));
    const Packed mine(in);
    const Unpacked all(is_root ? out : TensorView());
    algorithms::gather_linear(mesh, mine.bytes(), all.bytes().data(),
                              algorithms::equal_parts(mesh.size(), in.bytes()), root);
    all.commit();
  });
}

void Communicator::gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                            int root, const Options& options) {
  state_->collective(
      fingerprint(Op::gather_v, in.dtype, transport::counts_vary, root), options, [&](Call& mesh) {
        check_root(mesh, root);
        check_view(mesh, in);
        const bool is_root = mesh.rank() == root;
        if (is_root) check_same(mesh, in, out, check_counts(mesh, counts, in.count, "in"));
        const Packed mine(in);
        const Unpacked all(is_root ? out : TensorView());
        algorithms::gather_linear(
            mesh, mine.bytes(), all.bytes().data(),
            is_root ? algorithms::parts_of(counts, size_of(in.dtype)) : Offsets{}, root);
        all.commit();
      });
}

void Communicator::scatter(ConstTensorView in, TensorView out, int root, const Options& options) {
  state_->collective(
      fingerprint(Op::scatter, out.dtype, out.count, root), options, [&](Call& mesh) {
        check_root(mesh, root);
        check_view(mesh, out);
        const bool is_root = mesh.rank() == root;
        if (is_root) check_same(mesh, out, in, product(mesh.size(), out.count));
        const Packed all(is_root ? in : ConstTensorView());
        const Unpacked mine(out);
        algorithms::scatter_linear(mesh, all.bytes().data(), mine.bytes(),
                                   algorithms::equal_parts(mesh.size(), out.bytes()), root);
        mine.commit();
      });
}

void Communicator::scatter_v(ConstTensorView in, TensorView out,
                             std::span<const std::size_t> counts, int root,
                             const Options& options) {
  state_->collective(fingerprint(Op::scatter_v, out.dtype, transport::counts_vary, root), options,
                     [&](Call& mesh) {
                       check_root(mesh, root);
                       check_view(mesh, out);
                       const bool is_root = mesh.rank() == root;
                       if (is_root)
                         check_same(mesh, out, in, check_counts(mesh, counts, out.count, "out"));
                       const Packed all(is_root ? in : ConstTensorView());
                       const Unpacked mine(out);
                       algorithms::scatter_linear(
                           mesh, all.bytes().data(), mine.bytes(),
                           is_root ? algorithms::parts_of(counts, size_of(out.dtype)) : Offsets{},
                           root);
                       mine.commit();
                     });
}

void Communicator::reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction,
                                  const Options& options) {
  state_->collective(
      reducing(Op::reduce_scatter, out.dtype, out.count, reduction), options, [&](Call& mesh) {
        check_view(mesh, out);
        check_same(mesh, out, in, product(mesh.size(), out.count));
        const Folder fold(reduction, out.dtype, options.truncate_mean);
        const Packed all(in);
        const Unpacked mine(out);
        algorithms::reduce_scatter_pairwise(mesh, all.bytes(), mine.bytes().data(),
                                            algorithms::equal_parts(mesh.size(), out.bytes()),
                                            fold);
        mine.commit();
      });
}

void Communicator::reduce_scatter_v(ConstTensorView in, TensorView out,
                                    std::span<const std::size_t> counts, const Reduction& reduction,
                                    const Options& options) {
  Fingerprint call = reducing(Op::reduce_scatter_v, out.dtype, transport::counts_vary, reduction);
  call.argument ^= hash_counts(counts);
  state_->collective(call, options, [&](Call& mesh) {
    check_view(mesh, out);
    check_same(mesh, out, in, check_counts(mesh, counts, out.count, "out"));
    const Folder fold(reduction, out.dtype, options.truncate_mean);
    const Packed all(in);
    const Unpacked mine(out);
    algorithms::reduce_scatter_pairwise(mesh, all.bytes(), mine.bytes().data(),
                                        algorithms::parts_of(counts, size_of(out.dtype)), fold);
    mine.commit();
  });
}

void Communicator::all_to_all(ConstTensorView in, TensorView out, const Options& options) {
  state_->collective(fingerprint(Op::all_to_all, in.dtype, in.count), options, [&](Call& mesh) {
    check_view(mesh, in);
    check_same(mesh, in, out, in.count);
    const auto ranks = static_cast<std::size_t>(mesh.size());
    require(mesh, in.count % ranks == 0,
            "'in' has " + std::to_string(in.count) + " elements, which are not " +
                std::to_string(ranks) + " equal parts");
    const Packed all(in);
    const Unpacked result(out);
    const Offsets parts = algorithms::equal_parts(mesh.size(), in.bytes() / ranks);
    algorithms::all_to_all_pairwise(mesh, all.bytes().data(), parts, result.bytes().data(), parts);
    result.commit();
  });
}

void Communicator::all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts,
                                TensorView out, std::span<const std::size_t> out_counts,
                                const Options& options) {
  state_->collective(
      fingerprint(Op::all_to_all_v, in.dtype, transport::counts_vary), options, [&](Call& mesh) {
        check_view(mesh, in);
        const auto me = static_cast<std::size_t>(mesh.rank());
        require(mesh, in_counts.size() == out_counts.size() && me < in_counts.size(),
                "in_counts and out_counts have one entry for each rank");
        const std::size_t all = check_counts(mesh, in_counts, in_counts[me], "in");
        require(mesh, in.count == all,
                "'in' has " + std::to_string(in.count) + " elements, in_counts say " +
                    std::to_string(all));
        check_same(mesh, in, out, check_counts(mesh, out_counts, in_counts[me], "out"));
        const Packed data(in);
        const Unpacked result(out);
        algorithms::all_to_all_pairwise(
            mesh, data.bytes().data(), algorithms::parts_of(in_counts, size_of(in.dtype)),
            result.bytes().data(), algorithms::parts_of(out_counts, size_of(in.dtype)));
        result.commit();
      });
}

}  // namespace dlaunch
