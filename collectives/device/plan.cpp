#include "collectives/device/plan.hpp"

#include "collectives/algorithms/select/parts.hpp"
#include "collectives/device/checks.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace dlaunch::device {
namespace {

using algorithms::Offsets;
using algorithms::size_of_part;
using transport::Fingerprint;
using transport::Op;

int device_of(std::initializer_list<ConstTensorView> views) {
  for (const auto& view : views) {
    if (!view.place.is_host()) return view.place.cuda_device;
  }
  return -1;
}

Plan reducing_plan(const Call& call, const Reduction& reduction, DType dtype, bool truncate_mean) {
  check_reduction(call, reduction, dtype, truncate_mean);
  Plan plan;
  plan.dtype = dtype;
  plan.reduce = reduction.op();
  plan.factor = reduction.factor();
  return plan;
}

Fingerprint print_of(Op op, const ConstTensorView& view, int root = -1) {
  Fingerprint print;
  print.op = op;
  print.dtype = view.dtype;
  print.count = view.count;
  print.root = root;
  print.traffic = transport::Traffic::device_bit;
  return print;
}

Fingerprint reducing(Op op, const ConstTensorView& view, const Reduction& reduction,
                     int root = -1) {
  Fingerprint print = print_of(op, view, root);
  print.reduce = reduction.op();
  print.argument = hash_of(reduction);
  return print;
}

const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }

/// A rank's own part; nothing where it lies in its place already.
void add_copy(Plan& plan, const void* from, void* to, std::size_t bytes) {
  if (from != to && bytes > 0) plan.steps.push_back({Move::copy, from, to, bytes, -1});
}

Offsets parts_of(int ranks, std::span<const std::size_t> counts, std::size_t each, DType dtype) {
  if (counts.empty()) return algorithms::equal_parts(ranks, each * size_of(dtype));
  return algorithms::parts_of(counts, size_of(dtype));
}

/// `counts` is empty where all parts have `mine.count` elements.
Plan gather_plan(const Call& call, int device, const ConstTensorView& mine, const TensorView& all,
                 std::span<const std::size_t> counts, bool varies, int root) {
  check_root(call, root);
  check_place(call, device, mine);
  Plan plan;
  if (call.rank() != root) {
    if (mine.count > 0) plan.steps.push_back({Move::send, mine.data, nullptr, mine.bytes(), root});
    return plan;
  }
  const std::size_t sum = varies ? check_counts(call, counts, mine.count, "in")
                                 : parts_together(call.size(), mine.count);
  check_both(call, device, mine, all, sum);
  check_in_is_part(call, mine, all,
                   varies ? elements_before(call, counts) : elements_before(call, mine.count));
  const Offsets parts = parts_of(call.size(), counts, mine.count, mine.dtype);
  for (std::size_t rank = 0; rank + 1 < parts.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    const std::size_t bytes = size_of_part(parts, peer);
    std::byte* const to = at(all.data, parts[rank]);
    if (peer == root) {
      add_copy(plan, mine.data, to, bytes);
    } else if (bytes > 0) {
      plan.steps.push_back({Move::recv, nullptr, to, bytes, peer});
    }
  }
  return plan;
}

Plan scatter_plan(const Call& call, int device, const ConstTensorView& all, const TensorView& mine,
                  std::span<const std::size_t> counts, bool varies, int root) {
  check_root(call, root);
  check_place(call, device, mine);
  Plan plan;
  if (call.rank() != root) {
    if (mine.count > 0) plan.steps.push_back({Move::recv, nullptr, mine.data, mine.bytes(), root});
    return plan;
  }
  const std::size_t sum = varies ? check_counts(call, counts, mine.count, "out")
                                 : parts_together(call.size(), mine.count);
  check_both(call, device, mine, all, sum);
  check_out_is_part(call, all, mine,
                    varies ? elements_before(call, counts) : elements_before(call, mine.count));
  const Offsets parts = parts_of(call.size(), counts, mine.count, mine.dtype);
  for (std::size_t rank = 0; rank + 1 < parts.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    const std::size_t bytes = size_of_part(parts, peer);
    const std::byte* const from = at(all.data, parts[rank]);
    if (peer == root) {
      add_copy(plan, from, mine.data, bytes);
    } else if (bytes > 0) {
      plan.steps.push_back({Move::send, from, nullptr, bytes, peer});
    }
  }
  return plan;
}

Plan exchange_plan(const Call& call, const ConstTensorView& in, const Offsets& in_parts,
                   const TensorView& out, const Offsets& out_parts) {
  Plan plan;
  for (std::size_t rank = 0; rank + 1 < in_parts.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    const std::byte* const from = at(in.data, in_parts[rank]);
    std::byte* const to = at(out.data, out_parts[rank]);
    if (peer == call.rank()) {
      add_copy(plan, from, to, size_of_part(in_parts, peer));
      continue;
    }
    if (const auto bytes = size_of_part(in_parts, peer); bytes > 0) {
      plan.steps.push_back({Move::send, from, nullptr, bytes, peer});
    }
    if (const auto bytes = size_of_part(out_parts, peer); bytes > 0) {
      plan.steps.push_back({Move::recv, nullptr, to, bytes, peer});
    }
  }
  return plan;
}

ConstTensorView view_of(const Transfer& transfer) {
  return transfer.is_send ? transfer.out : transfer.in;
}

void check_message(const Call& call, const Transfer& transfer, int tag) {
  if (transfer.peer == any_source) lacks(call, "NCCL receives from a rank, not from any");
  require(call, transfer.peer >= 0 && transfer.peer < call.size(), [&] {
    return "there is no rank " + std::to_string(transfer.peer) + ", ranks are 0 to " +
           std::to_string(call.size() - 1);
  });
  if (transfer.tag != 0 || tag != 0)
    lacks(call, "NCCL's messages have no tags; leave the tag at 0");
}

}  // namespace

Request broadcast(TensorView inout, int root) {
  const int device = device_of({inout});
  return {print_of(Op::broadcast, inout, root), device, any_source, [=](const Call& call) {
            check_root(call, root);
            check_place(call, device, inout);
            Plan plan;
            plan.steps.push_back({Move::broadcast, inout.data, inout.data, inout.bytes(), root});
            return plan;
          }};
}

Request reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction,
               const Options& options) {
  const int device = device_of({in, out});
  return {
      reducing(Op::reduce, in, reduction, root), device, any_source,
      [=, &reduction, &options](const Call& call) {
        check_root(call, root);
        check_place(call, device, in);
        const bool is_root = call.rank() == root;
        if (is_root) {
          check_both(call, device, in, out, in.count);
          check_apart_or_same(call, in, out);
        }
        Plan plan = reducing_plan(call, reduction, in.dtype, options.truncate_mean);
        plan.steps.push_back({Move::reduce, in.data, is_root ? out.data : nullptr, in.count, root});
        return plan;
      }};
}

Request all_reduce(TensorView inout, const Reduction& reduction, const Options& options) {
  const int device = device_of({inout});
  return {reducing(Op::all_reduce, inout, reduction), device, any_source,
          [=, &reduction, &options](const Call& call) {
            check_place(call, device, inout);
            Plan plan = reducing_plan(call, reduction, inout.dtype, options.truncate_mean);
            plan.steps.push_back({Move::all_reduce, inout.data, inout.data, inout.count, -1});
            return plan;
          }};
}

Request all_gather(ConstTensorView in, TensorView out) {
  const int device = device_of({in, out});
  return {print_of(Op::all_gather, in), device, any_source, [=](const Call& call) {
            check_both(call, device, in, out, parts_together(call.size(), in.count));
            check_in_is_part(call, in, out, elements_before(call, in.count));
            Plan plan;
            plan.steps.push_back({Move::all_gather, in.data, out.data, in.bytes(), -1});
            return plan;
          }};
}

/// NCCL has no such call: every rank broadcasts its part, all at once.
Request all_gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts) {
  const int device = device_of({in, out});
  Fingerprint print = print_of(Op::all_gather_v, in);
  print.count = transport::counts_vary;
  print.argument = transport::hash_bytes(counts.data(), counts.size_bytes());
  return {print, device, any_source, [=](const Call& call) {
            check_both(call, device, in, out, check_counts(call, counts, in.count, "in"));
            check_in_is_part(call, in, out, elements_before(call, counts));
            const Offsets parts = algorithms::parts_of(counts, size_of(in.dtype));
            Plan plan;
            for (int rank = 0; rank < call.size(); ++rank) {
              const auto r = static_cast<std::size_t>(rank);
              std::byte* const to = at(out.data, parts[r]);
              if (counts[r] == 0) continue;
              const void* const from = rank == call.rank() ? in.data : to;
              plan.steps.push_back({Move::broadcast, from, to, size_of_part(parts, rank), rank});
            }
            return plan;
          }};
}

Request gather(ConstTensorView in, TensorView out, int root) {
  const int device = device_of({in, out});
  return {print_of(Op::gather, in, root), device, any_source,
          [=](const Call& call) { return gather_plan(call, device, in, out, {}, false, root); }};
}

Request gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                 int root) {
  const int device = device_of({in, out});
  Fingerprint print = print_of(Op::gather_v, in, root);
  print.count = transport::counts_vary;
  return {print, device, any_source,
          [=](const Call& call) { return gather_plan(call, device, in, out, counts, true, root); }};
}

Request scatter(ConstTensorView in, TensorView out, int root) {
  const int device = device_of({out, in});
  return {print_of(Op::scatter, out, root), device, any_source,
          [=](const Call& call) { return scatter_plan(call, device, in, out, {}, false, root); }};
}

Request scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                  int root) {
  const int device = device_of({out, in});
  Fingerprint print = print_of(Op::scatter_v, out, root);
  print.count = transport::counts_vary;
  return {print, device, any_source, [=](const Call& call) {
            return scatter_plan(call, device, in, out, counts, true, root);
          }};
}

Request reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction,
                       const Options& options) {
  const int device = device_of({out, in});
  return {reducing(Op::reduce_scatter, out, reduction), device, any_source,
          [=, &reduction, &options](const Call& call) {
            check_both(call, device, out, in, parts_together(call.size(), out.count));
            check_out_is_part(call, in, out, elements_before(call, out.count));
            Plan plan = reducing_plan(call, reduction, out.dtype, options.truncate_mean);
            plan.steps.push_back({Move::reduce_scatter, in.data, out.data, out.count, -1});
            return plan;
          }};
}

/// Every rank's part is reduced to it, all at once.
Request reduce_scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                         const Reduction& reduction, const Options& options) {
  const int device = device_of({out, in});
  Fingerprint print = reducing(Op::reduce_scatter_v, out, reduction);
  print.count = transport::counts_vary;
  print.argument ^= transport::hash_bytes(counts.data(), counts.size_bytes());
  return {print, device, any_source, [=, &reduction, &options](const Call& call) {
            check_both(call, device, out, in, check_counts(call, counts, out.count, "out"));
            check_out_is_part(call, in, out, elements_before(call, counts));
            const Offsets parts = algorithms::parts_of(counts, size_of(out.dtype));
            Plan plan = reducing_plan(call, reduction, out.dtype, options.truncate_mean);
            for (int rank = 0; rank < call.size(); ++rank) {
              const auto r = static_cast<std::size_t>(rank);
              if (counts[r] == 0) continue;
              plan.steps.push_back({Move::reduce, at(in.data, parts[r]),
                                    rank == call.rank() ? out.data : nullptr, counts[r], rank});
            }
            return plan;
          }};
}

Request all_to_all(ConstTensorView in, TensorView out) {
  const int device = device_of({in, out});
  return {print_of(Op::all_to_all, in), device, any_source, [=](const Call& call) {
            check_both(call, device, in, out, in.count);
            check_apart(call, in, out);
            const auto ranks = static_cast<std::size_t>(call.size());
            require(call, in.count % ranks == 0, [&] {
              return "'in' has " + std::to_string(in.count) + " elements, which are not " +
                     std::to_string(ranks) + " equal parts";
            });
            const Offsets parts = algorithms::equal_parts(call.size(), in.bytes() / ranks);
            return exchange_plan(call, in, parts, out, parts);
          }};
}

Request all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts, TensorView out,
                     std::span<const std::size_t> out_counts) {
  const int device = device_of({in, out});
  Fingerprint print = print_of(Op::all_to_all_v, in);
  print.count = transport::counts_vary;
  return {print, device, any_source, [=](const Call& call) {
            const auto me = static_cast<std::size_t>(call.rank());
            require(call, in_counts.size() == out_counts.size() && me < in_counts.size(), [&] {
              return std::string("in_counts and out_counts have one entry for each rank");
            });
            const std::size_t all = check_counts(call, in_counts, in_counts[me], "in");
            require(call, in.count == all, [&] {
              return "'in' has " + std::to_string(in.count) + " elements, in_counts say " +
                     std::to_string(all);
            });
            check_both(call, device, in, out, check_counts(call, out_counts, in_counts[me], "out"));
            check_apart(call, in, out);
            return exchange_plan(call, in, algorithms::parts_of(in_counts, size_of(in.dtype)), out,
                                 algorithms::parts_of(out_counts, size_of(in.dtype)));
          }};
}

bool any_on_device(std::span<const Transfer> transfers) noexcept {
  return std::any_of(transfers.begin(), transfers.end(),
                     [](const Transfer& transfer) { return any_on_device({view_of(transfer)}); });
}

Request messages(std::span<const Transfer> transfers, const Options& options) {
  const auto first = std::find_if(transfers.begin(), transfers.end(), [](const Transfer& transfer) {
    return any_on_device({view_of(transfer)});
  });
  const ConstTensorView shown = view_of(*first);
  const int device = shown.place.cuda_device;
  return {print_of(first->is_send ? Op::send : Op::recv, shown), device, first->peer,
          [transfers, device, &options](const Call& call) {
            Plan plan;
            for (const Transfer& transfer : transfers) {
              check_place(call, device, view_of(transfer));
              check_message(call, transfer, options.tag);
              plan.steps.push_back({transfer.is_send ? Move::send : Move::recv, transfer.out.data,
                                    transfer.in.data, view_of(transfer).bytes(), transfer.peer,
                                    view_of(transfer).dtype});
            }
            return plan;
          }};
}

}  // namespace dlaunch::device
