#include "collectives/bench/explain.hpp"

#include "collectives/bench/measure.hpp"

#include <string_view>

#include <fmt/format.h>

namespace dlaunch::bench {

namespace {

struct Served {
  const char* algorithm;
  std::string_view why;
};

Served served(const algorithms::Table& table, const Operation& entry, std::size_t bytes,
              const algorithms::Topology& topology) {
  if (entry.pair() && topology.shared) return {"ring", "in the memory that both share"};
  if (entry.pair()) return {"message", "from one rank to the other"};
  if (topology.ranks == 1) return {"alone", "there is no other rank"};
  if (entry.ring()) return {"messages", "to both neighbours, and from them"};
  if (entry.partners == Partners::random) return {"messages", "between pairs that change"};
  if (entry.partners == Partners::root) return {"messages", "to the root, from anybody"};
  const auto choice = table.select(*entry.calls, bytes, topology);
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
    topology.freedom = entry.reduces() ? freedom : Freedom::none;
    for (const Amount& amount : amounts_for(entry, settings, topology.ranks)) {
      const auto [algorithm, why] = served(table, entry, amount.count * width, topology);
      text += fmt::format("{:<15} {:>12} B  {}: {}\n", entry.name, amount.bytes, algorithm, why);
    }
  }
  return text;
}

}  // namespace dlaunch::bench
