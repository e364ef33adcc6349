#include "collectives/call/collective_call.hpp"

#include "collectives/algorithms/algorithms.hpp"

namespace dlaunch {
namespace {

/// Elements of all ranks' parts together.
std::size_t check_parts(const Call& call, const CollectiveCall& what, const ConstTensorView& part,
                        const char* name) {
  if (!shape_of(what.op).has_counts) return parts_together(call.size(), part.count);
  return check_counts(call, what.counts, part.count, name);
}

std::size_t elements_before_own(const Call& call, const CollectiveCall& what,
                                const ConstTensorView& part) {
  if (!shape_of(what.op).has_counts) return elements_before(call, part.count);
  return elements_before(call, what.counts);
}

template <class View>
std::vector<ConstTensorView> readable(std::span<const View> views) {
  return std::vector<ConstTensorView>(views.begin(), views.end());
}

/// The number of elements that an exchange's `out` needs.
std::size_t check_exchanged(const Call& call, const CollectiveCall& what) {
  const auto ranks = static_cast<std::size_t>(call.size());
  if (!shape_of(what.op).has_counts) {
    require(call, what.in.count % ranks == 0, [&] {
      return "'in' has " + std::to_string(what.in.count) + " elements, which are not " +
             std::to_string(ranks) + " equal parts";
    });
    return what.in.count;
  }
  const auto me = static_cast<std::size_t>(call.rank());
  require(call, what.counts.size() == what.out_counts.size() && me < what.counts.size(),
          [] { return std::string("in_counts and out_counts have one entry for each rank"); });
  const std::size_t own = what.counts[me];
  const std::size_t all = check_counts(call, what.counts, own, "in");
  require(call, what.in.count == all, [&] {
    return "'in' has " + std::to_string(what.in.count) + " elements, in_counts say " +
           std::to_string(all);
  });
  return check_counts(call, what.out_counts, own, "out");
}

}  // namespace

void check_both(const Call& call, const CollectiveCall& what) {
  const ConstTensorView& in = what.in;
  const ConstTensorView out = what.out;
  if (what.has_in) check_view(call, in, "in");
  if (what.reduction != nullptr) {
    const auto objection =
        Reducer::objection(*what.reduction, what.compared().dtype, what.truncate_mean);
    if (objection) refuse(call, *objection);
  }
  switch (shape_of(what.op).buffers) {
    case Buffers::none:
      return;
    case Buffers::one:
    case Buffers::alike:
      check_same(call, in, out, in.count, "in", "out");
      return check_apart_or_same(call, in, out);
    case Buffers::gathered:
      if (what.is_list) {
        return check_list(call, readable(what.outs), in, ListUse::written);
      }
      check_same(call, in, out, check_parts(call, what, in, "in"), "in", "out");
      return check_in_is_part(call, in, out, elements_before_own(call, what, in));
    case Buffers::dealt_out:
      if (what.is_list) {
        return check_list(call, readable(what.ins), out, ListUse::read);
      }
      check_same(call, out, in, check_parts(call, what, out, "out"), "out", "in");
      return check_out_is_part(call, in, out, elements_before_own(call, what, out));
    case Buffers::exchanged:
      if (what.is_list) return check_lists(call, readable(what.ins), readable(what.outs));
      check_same(call, in, out, check_exchanged(call, what), "in", "out");
      return check_apart(call, in, out);
  }
}

void check_elements(const Call& call, const CollectiveCall& what) {
  if (what.reduction == nullptr || what.reduction->element_bytes() == 0) return;
  const ConstTensorView compared = what.compared();
  const auto check_count = [&](std::size_t count) {
    if (const auto remainder = Reducer::remainder(*what.reduction, count * size_of(compared.dtype)))
      refuse(call, *remainder);
  };
  if (!shape_of(what.op).has_counts) return check_count(compared.count);
  for (const std::size_t count : what.counts) check_count(count);
}

int CollectiveCall::device_of_list() const noexcept {
  for (const auto& view : ins) {
    if (!view.place.is_host()) return view.place.cuda_device;
  }
  for (const auto& view : outs) {
    if (!view.place.is_host()) return view.place.cuda_device;
  }
  return -1;
}

WaitingCall::WaitingCall(const CollectiveCall& what)
    : what_(what),
      counts_(what.counts.begin(), what.counts.end()),
      out_counts_(what.out_counts.begin(), what.out_counts.end()),
      ins_(what.ins.begin(), what.ins.end()),
      outs_(what.outs.begin(), what.outs.end()) {
  if (what.reduction != nullptr) reduction_ = *what.reduction;
}

CollectiveCall WaitingCall::what() const {
  CollectiveCall what = what_;
  what.reduction = reduction_ ? &*reduction_ : nullptr;
  what.counts = counts_;
  what.out_counts = out_counts_;
  what.ins = ins_;
  what.outs = outs_;
  return what;
}

}  // namespace dlaunch
