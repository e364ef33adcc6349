#include "collectives/bench/operations.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::bench {

namespace {

constexpr std::array<Operation, 12> table = {{
    // op, name, sized, reduces, rooted, in_parts, pair
    {Op::barrier, "barrier", false, false, false, false, false},
    {Op::barrier_ordered, "barrier_ordered", false, false, false, false, false},
    {Op::broadcast, "broadcast", true, false, true, false, false},
    {Op::reduce, "reduce", true, true, true, false, false},
    {Op::all_reduce, "all_reduce", true, true, false, false, false},
    {Op::all_gather, "all_gather", true, false, false, true, false},
    {Op::gather, "gather", true, false, true, true, false},
    {Op::scatter, "scatter", true, false, true, true, false},
    {Op::reduce_scatter, "reduce_scatter", true, true, false, true, false},
    {Op::all_to_all, "all_to_all", true, false, false, true, false},
    {Op::ping_pong, "ping_pong", true, false, false, false, true},
    {Op::bidirectional, "bidirectional", true, false, false, false, true},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].op != static_cast<Op>(i)) return false;
  }
  return true;
}
static_assert(in_order(), "operation() counts on it");

}  // namespace

std::span<const Operation> operations() { return table; }

const Operation* find_operation(std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Operation& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Operation& operation(Op op) { return table[static_cast<std::size_t>(op)]; }

double bus_factor(Op op, int ranks) {
  const double n = ranks;
  switch (op) {
    case Op::all_reduce:
      return 2 * (n - 1) / n;
    case Op::all_gather:
    case Op::gather:
    case Op::scatter:
    case Op::reduce_scatter:
    case Op::all_to_all:
      return (n - 1) / n;
    case Op::barrier:
    case Op::barrier_ordered:
    case Op::broadcast:
    case Op::reduce:
    case Op::ping_pong:
    case Op::bidirectional:
      return 1;
  }
  return 1;
}

Amount amount_for(const Operation& operation, std::size_t bytes_asked, std::size_t element_bytes,
                  int ranks) {
  if (!operation.sized) return {};
  const std::size_t parts = operation.in_parts ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t count = std::max<std::size_t>(1, bytes_asked / (element_bytes * parts));
  return {count, count * element_bytes * parts};
}

}  // namespace dlaunch::bench
