#include "collectives/bench/operations.hpp"

#include "runtime/base/enum_table.hpp"

#include <algorithm>

namespace dlaunch::bench {

namespace {

using A = Alone;
using C = transport::Op;
using R = Reduced;
using enum Extent;

constexpr auto table = enum_table<&Operation::op, Op::barrier, Op::fan_in>({
    // op, name, calls, in, out, alone, reduced, crossings, on_device
    {Op::barrier, "barrier", C::barrier, none, none, A::none, R::none, 0, false},
    {Op::barrier_ordered, "barrier_ordered", C::barrier, none, none, A::none, R::none, 0, false},
    {Op::broadcast, "broadcast", C::broadcast, none, one_part},
    {Op::reduce, "reduce", C::reduce, one_part, one_part, A::out, R::all},
    {Op::all_reduce, "all_reduce", C::all_reduce, none, one_part, A::none, R::all, 2},
    {Op::all_gather, "all_gather", C::all_gather, one_part, part_for_each, A::none, R::none, 1},
    {Op::gather, "gather", C::gather, one_part, part_for_each, A::out, R::none, 1},
    {Op::scatter, "scatter", C::scatter, part_for_each, one_part, A::in, R::none, 1},
    {Op::reduce_scatter, "reduce_scatter", C::reduce_scatter, part_for_each, one_part, A::none,
     R::all, 1},
    {Op::all_to_all, "all_to_all", C::all_to_all, part_for_each, part_for_each, A::none, R::none,
     1},
    {Op::scan, "scan", C::scan, one_part, one_part, A::none, R::up_to_own, 0, false},
    {Op::exscan, "exscan", C::exscan, one_part, one_part, A::none, R::before_own, 0, false},
    {.op = Op::ping_pong,
     .name = "ping_pong",
     .in = one_part,
     .out = one_part,
     .messages = 2,
     .partners = Partners::first_two},
    {.op = Op::bidirectional,
     .name = "bidirectional",
     .in = one_part,
     .out = one_part,
     .partners = Partners::first_two},
    {.op = Op::window,
     .name = "window",
     .in = one_part,
     .out = one_part,
     .on_device = false,
     .messages = 2 * window_messages,
     .partners = Partners::first_two},
    {.op = Op::halo,
     .name = "halo",
     .in = two_parts,
     .out = two_parts,
     .on_device = false,
     .partners = Partners::neighbours},
    {.op = Op::random_pairs,
     .name = "random_pairs",
     .in = one_part,
     .out = one_part,
     .on_device = false,
     .partners = Partners::random},
    {.op = Op::fan_in,
     .name = "fan_in",
     .in = one_part,
     .out = part_for_each,
     .alone = A::out,
     .on_device = false,
     .partners = Partners::root},
});

template <class Is>
const Operation* first_where(const Is& is) {
  const auto found = std::find_if(table.begin(), table.end(), is);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Operation> operations() { return table; }

const Operation* find_operation(std::string_view name) {
  return first_where([&](const Operation& entry) { return entry.name == name; });
}

const Operation* find_measuring(transport::Op calls) {
  return first_where([&](const Operation& entry) { return entry.calls == calls; });
}

const Operation& operation(Op op) { return table[static_cast<std::size_t>(op)]; }

double bus_factor(const Operation& operation, int ranks) {
  const double n = ranks;
  return operation.crossings == 0 ? 1 : operation.crossings * (n - 1) / n;
}

Amount amount_for(const Operation& operation, std::size_t bytes_asked, std::size_t element_bytes,
                  int ranks) {
  if (!operation.sized()) return {};
  const std::size_t parts = operation.parts(ranks);
  const std::size_t count = std::max<std::size_t>(1, bytes_asked / (element_bytes * parts));
  return {count, count * element_bytes * parts};
}

}  // namespace dlaunch::bench
