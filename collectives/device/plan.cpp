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

const std::byte* at(const void* data, std::size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, std::size_t offset) { return static_cast<std::byte*>(data) + offset; }

/// Copies a rank's own part, unless it lies in its place already.
void add_copy(Plan& plan, const void* from, void* to, std::size_t bytes) {
  if (from != to && bytes > 0) plan.steps.push_back({Move::copy, from, to, bytes, -1});
}

/// A rank's part of the buffer that has one for each.
const void* part_in(const CollectiveCall& what, const Offsets& parts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return what.is_list ? what.ins[r].data : at(what.in.data, parts[r]);
}
void* part_out(const CollectiveCall& what, const Offsets& parts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return what.is_list ? what.outs[r].data : at(what.out.data, parts[r]);
}

void add_gather(Plan& plan, const Call& call, const CollectiveCall& what) {
  if (call.rank() != what.root) {
    if (what.in.count > 0) {
      plan.steps.push_back({Move::send, what.in.data, nullptr, what.in.bytes(), what.root});
    }
    return;
  }
  const Offsets parts = parts_of(what.op, call, what);
  for (int peer = 0; peer < call.size(); ++peer) {
    const std::size_t bytes = size_of_part(parts, peer);
    void* const to = part_out(what, parts, peer);
    if (peer == what.root) {
      add_copy(plan, what.in.data, to, bytes);
    } else if (bytes > 0) {
      plan.steps.push_back({Move::recv, nullptr, to, bytes, peer});
    }
  }
}

void add_scatter(Plan& plan, const Call& call, const CollectiveCall& what) {
  if (call.rank() != what.root) {
    if (what.out.count > 0) {
      plan.steps.push_back({Move::recv, nullptr, what.out.data, what.out.bytes(), what.root});
    }
    return;
  }
  const Offsets parts = parts_of(what.op, call, what);
  for (int peer = 0; peer < call.size(); ++peer) {
    const std::size_t bytes = size_of_part(parts, peer);
    const void* const from = part_in(what, parts, peer);
    if (peer == what.root) {
      add_copy(plan, from, what.out.data, bytes);
    } else if (bytes > 0) {
      plan.steps.push_back({Move::send, from, nullptr, bytes, peer});
    }
  }
}

void add_exchange(Plan& plan, const Call& call, const CollectiveCall& what, const Offsets& in_parts,
                  const Offsets& out_parts) {
  for (int peer = 0; peer < call.size(); ++peer) {
    const void* const from = part_in(what, in_parts, peer);
    void* const to = part_out(what, out_parts, peer);
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
}

/// NCCL has no such call, so every rank broadcasts its part, all at once.
void add_broadcasts(Plan& plan, const Call& call, const CollectiveCall& what) {
  const Offsets parts = parts_of(what.op, call, what);
  for (int rank = 0; rank < call.size(); ++rank) {
    const std::size_t bytes = size_of_part(parts, rank);
    if (bytes == 0) continue;
    void* const to = part_out(what, parts, rank);
    const void* const from = rank == call.rank() ? what.in.data : to;
    plan.steps.push_back({Move::broadcast, from, to, bytes, rank});
  }
}

/// Every rank's part is reduced to that rank, all at once.
void add_reduces(Plan& plan, const Call& call, const CollectiveCall& what) {
  const Offsets parts = parts_of(what.op, call, what);
  for (int rank = 0; rank < call.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (what.counts[r] == 0) continue;
    plan.steps.push_back({Move::reduce, part_in(what, parts, rank),
                          rank == call.rank() ? what.out.data : nullptr, what.counts[r], rank});
  }
}

void add_steps(Plan& plan, const Call& call, const CollectiveCall& what) {
  const auto add = [&](Move move, const void* from, std::size_t count) {
    plan.steps.push_back({move, from, what.out.data, count, what.root});
  };
  switch (what.op) {
    case Op::broadcast:
      return add(Move::broadcast, what.out.data, what.out.bytes());
    case Op::reduce:
      return add(Move::reduce, what.in.data, what.in.count);
    case Op::all_reduce:
      return add(Move::all_reduce, what.has_in ? what.in.data : what.out.data, what.out.count);
    case Op::all_gather:
      return add(Move::all_gather, what.in.data, what.in.bytes());
    case Op::all_gather_v:
      return add_broadcasts(plan, call, what);
    case Op::gather:
    case Op::gather_v:
      return add_gather(plan, call, what);
    case Op::scatter:
    case Op::scatter_v:
      return add_scatter(plan, call, what);
    case Op::reduce_scatter:
      return add(Move::reduce_scatter, what.in.data, what.out.count);
    case Op::reduce_scatter_v:
      return add_reduces(plan, call, what);
    case Op::all_to_all: {
      const std::size_t ranks = static_cast<std::size_t>(call.size());
      const Offsets parts(call.size(), what.in.bytes() / ranks);
      return add_exchange(plan, call, what, parts, parts);
    }
    case Op::all_to_all_v:
      return add_exchange(plan, call, what, parts_of(what.op, call, what),
                          algorithms::parts_of(what.out_counts, size_of(what.in.dtype)));
    case Op::scan:
    case Op::exscan:
      lacks(call, "NCCL has no scan; copy to host memory, or gather and reduce");
    case Op::barrier:
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
      return;  // These have no buffers that could lie on a device, or are no CollectiveCalls.
  }
}

/// NCCL before 2.29.7 scales a lone rank's elements in up to 32 parts of 16 KiB or more. It rounds
/// their length down, and forgets the elements that are left then (oneRankReduce in onerank.cu). So
/// each step is split into some in which nothing is left.
std::vector<Step> in_whole_parts(const std::vector<Step>& steps, DType dtype) {
  constexpr std::size_t part_bytes = 16u << 10;
  constexpr std::size_t parts_max = 32;
  const std::size_t element = size_of(dtype);
  std::vector<Step> split;
  for (Step step : steps) {
    std::size_t left = step.count;
    for (const std::size_t unit :
         {parts_max * part_bytes / element, part_bytes / element, std::size_t{1}}) {
      step.count = left / unit * unit;
      left -= step.count;
      if (step.count > 0) split.push_back(step);
      step.in = at(step.in, step.count * element);
      step.out = at(step.out, step.count * element);
    }
  }
  return split;
}

Plan plan_of(const Call& call, CollectiveCall what) {
  const int device = what.device();
  const DType dtype = what.compared().dtype;
  // A missing buffer has no type of its own.
  if (is_absent(what.in)) what.in.dtype = dtype;
  if (is_absent(what.out)) what.out.dtype = dtype;
  what.has_in ? check_both(call, what) : check(what.op, call, what);
  check_place(call, device, what.in);
  check_place(call, device, what.out);
  for (const auto& view : what.ins) check_place(call, device, view);
  for (const auto& view : what.outs) check_place(call, device, view);
  Plan plan;
  if (shape_of(what.op).reduces) {
    check_reduction(call, *what.reduction, dtype, what.truncate_mean);
    plan.dtype = dtype;
    plan.reduce = what.reduction->op();
    plan.factor = what.reduction->factor();
    // A lone rank's mean is what it gives, and NCCL copies that instead of scaling it by one.
    if (call.size() == 1 && plan.reduce == ReduceOp::mean) plan.reduce = ReduceOp::sum;
  }
  add_steps(plan, call, what);
  if (call.size() == 1 && plan.reduce == ReduceOp::premul_sum) {
    plan.steps = in_whole_parts(plan.steps, dtype);
  }
  return plan;
}

ConstTensorView view_of(const Transfer& transfer) {
  return transfer.is_send ? transfer.out : transfer.in;
}

void check_message(const Call& call, const Transfer& transfer) {
  if (transfer.peer == any_source) lacks(call, "NCCL receives from a rank, not from any");
  require(call, transfer.peer >= 0 && transfer.peer < call.size(), [&] {
    return "there is no rank " + std::to_string(transfer.peer) + ", ranks are 0 to " +
           std::to_string(call.size() - 1);
  });
  if (transfer.up_to) lacks(call, "NCCL receives a buffer whole, not up to its length");
  if (transfer.tag != 0) lacks(call, "NCCL's messages have no tags; leave the tag at 0");
}

}  // namespace

Request request(const CollectiveCall& what) {
  Fingerprint print = fingerprint_of(what.op, what);
  print.traffic = transport::device_bit;
  return {print, what.device(), any_source,
          [&what](const Call& call) { return plan_of(call, what); }};
}

bool any_on_device(std::span<const Transfer> transfers) noexcept {
  return std::any_of(transfers.begin(), transfers.end(),
                     [](const Transfer& transfer) { return !view_of(transfer).place.is_host(); });
}

Request messages(std::span<const Transfer> transfers) {
  const auto first = std::find_if(transfers.begin(), transfers.end(), [](const Transfer& transfer) {
    return !view_of(transfer).place.is_host();
  });
  const ConstTensorView shown = view_of(*first);
  const int device = shown.place.cuda_device;
  Fingerprint print;
  print.op = first->is_send ? Op::send : Op::recv;
  print.dtype = shown.dtype;
  print.count = shown.count;
  print.traffic = transport::device_bit;
  return {print, device, first->peer, [transfers, device](const Call& call) {
            Plan plan;
            for (const Transfer& transfer : transfers) {
              check_place(call, device, view_of(transfer));
              check_message(call, transfer);
              plan.steps.push_back({transfer.is_send ? Move::send : Move::recv, transfer.out.data,
                                    transfer.in.data, view_of(transfer).bytes(), transfer.peer,
                                    view_of(transfer).dtype});
            }
            return plan;
          }};
}

}  // namespace dlaunch::device
