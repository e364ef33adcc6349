#include "collectives/bench/explain.hpp"

#include "collectives/bench/measure.hpp"

#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace dlaunch::bench {

namespace {

struct Served {
  const char* algorithm;
  std::string_view why;
};

/// The collective that is called; nullopt for messages.
std::optional<transport::Op> call_of(Op op) {
  switch (op) {
    case Op::barrier:
    case Op::barrier_ordered:
      return transport::Op::barrier;
    case Op::broadcast:
      return transport::Op::broadcast;
    case Op::reduce:
      return transport::Op::reduce;
    case Op::all_reduce:
      return transport::Op::all_reduce;
    case Op::all_gather:
      return transport::Op::all_gather;
    case Op::gather:
      return transport::Op::gather;
    case Op::scatter:
      return transport::Op::scatter;
    case Op::reduce_scatter:
      return transport::Op::reduce_scatter;
    case Op::all_to_all:
      return transport::Op::all_to_all;
    case Op::ping_pong:
    case Op::bidirectional:
      break;
  }
  return std::nullopt;
}

Served served(const algorithms::Table& table, Op op, std::size_t bytes,
              const algorithms::Topology& topology) {
  const auto call = call_of(op);
  if (!call && topology.shared) return {"ring", "in the memory that both share"};
  if (!call) return {"message", "from one rank to the other"};
  if (topology.ranks == 1) return {"alone", "there is no other rank"};
  const auto choice = table.select(*call, bytes, topology);
  return {to_string(choice.algorithm), choice.why};
}

}  // namespace

std::string explain_text(const Settings& settings, algorithms::Topology topology,
                         const algorithms::Table& table) {
  topology.registered = topology.shared && settings.buffers == Buffers::registered;
  const Reduction reduction = reduction_of(settings);
  const bool reduces = !Reducer::objection(reduction, settings.dtype, true);
  const Freedom freedom =
      reduces ? Reducer(reduction, settings.dtype, true).freedom() : Freedom::none;
  const std::size_t width = size_of(settings.dtype);
  std::string text = "# table: " + table.title() + "\n";
  for (const Op op : settings.ops) {
    const Operation& entry = operation(op);
    topology.freedom = entry.reduces ? freedom : Freedom::none;
    for (const Amount& amount : amounts_for(entry, settings, topology.ranks)) {
      const auto [algorithm, why] = served(table, op, amount.count * width, topology);
      text += fmt::format("{:<15} {:>12} B  {}: {}\n", entry.name, amount.bytes, algorithm, why);
    }
  }
  return text;
}

}  // namespace dlaunch::bench
