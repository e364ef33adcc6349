#include "collectives/algorithms/select/select.hpp"

#include "collectives/algorithms/select/rows.hpp"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>

namespace dlaunch::algorithms {
namespace {

using transport::Op;

constexpr std::size_t KiB = 1024;

std::string size_text(std::size_t bytes) {
  if (bytes >= KiB && bytes % KiB == 0) return std::to_string(bytes / KiB) + " KiB";
  return std::to_string(bytes) + " bytes";
}

std::size_t times(std::size_t value, std::size_t factor) {
  return factor != 0 && value > unlimited / factor ? unlimited : value * factor;
}

}  // namespace

const char* to_string(Algorithm algorithm) noexcept { return rows::name_of(algorithm); }

Table::Table() : rows_(rows::built_in.begin(), rows::built_in.end()) { sum_up(); }

const char* to_string(Measure measure) noexcept {
  switch (measure) {
    case Measure::bytes:
      return "bytes";
    case Measure::all:
      return "bytes x ranks";
    case Measure::each:
      return "bytes / ranks";
    case Measure::node:
      return "bytes x ranks of a node";
  }
  return "";
}

Topology topology_of(const Layout& layout, Freedom freedom) {
  return {.ranks = layout.ranks(),
          .nodes = layout.nodes(),
          .in_order = layout.in_order(),
          .is_even = layout.is_even(),
          .freedom = freedom};
}

std::size_t Row::limit(int ranks, int nodes) const {
  if (most == unlimited) return ceiling;
  const auto n = static_cast<std::size_t>(ranks);
  switch (measure) {
    case Measure::bytes:
      return std::min(most, ceiling);
    case Measure::all:
      return most / n;
    case Measure::each:
      return times(most, n);
    case Measure::node:
      return nodes > 0 ? times(most, static_cast<std::size_t>(nodes)) / n : unlimited;
  }
  return most;
}

std::size_t Row::measured(std::size_t bytes, int ranks, int nodes) const {
  if (bytes == unlimited) return unlimited;
  const auto n = static_cast<std::size_t>(ranks);
  const auto hosts = static_cast<std::size_t>(std::max(nodes, 1));
  switch (measure) {
    case Measure::bytes:
      return bytes;
    case Measure::all:
      return times(bytes, n);
    case Measure::each:
      return (bytes + n - 1) / n;
    case Measure::node:
      return (times(bytes, n) + hosts - 1) / hosts;
  }
  return bytes;
}

bool Row::fits(const Topology& topology) const {
  const Family family = choice.algorithm.family();
  if ((family == Family::shared) != topology.shared) return false;
  if (family == Family::by_node && (topology.nodes == 0 || topology.nodes > nodes_max))
    return false;
  if ((in_order && !topology.in_order) || (even && !topology.is_even)) return false;
  if (!allows(topology.freedom, freedom)) return false;
  return (!registered || topology.registered) && topology.ranks >= ranks_min &&
         topology.ranks <= ranks_max;
}

bool Row::holds(std::size_t bytes, const Topology& topology) const {
  return fits(topology) && bytes <= limit(topology.ranks, topology.nodes);
}

const Row* Table::find(std::string_view name) const {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) { return row.name == name; });
  return name.empty() || found == rows_.end() ? nullptr : &*found;
}

void Table::set_limit(std::string_view name, std::size_t most) {
  assert(find(name) != nullptr);
  for (Row& row : rows_) {
    if (row.name == name) row.most = most;
  }
  sum_up();
}

void Table::sum_up() {
  std::string all;
  for (std::size_t i = rows_.size(); i-- > 0;) {
    const Row& row = rows_[i];
    first_.at(static_cast<std::size_t>(row.op)) = static_cast<std::uint8_t>(i);
    for (const std::uint64_t part :
         {std::uint64_t(row.op), std::uint64_t(row.registered), std::uint64_t(row.in_order),
          std::uint64_t(row.even), std::uint64_t(row.ranks_min), std::uint64_t(row.ranks_max),
          std::uint64_t(row.nodes_max), std::uint64_t(row.measure), std::uint64_t(row.most),
          std::uint64_t(row.freedom), std::uint64_t(row.choice.algorithm.family()),
          std::uint64_t(row.choice.algorithm.number())}) {
      all += std::to_string(part) + ' ';
    }
  }
  digest_ = text_hash(all);
}

std::string Table::title() const {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(digest_));
  return origin_ + " (" + digits + ")";
}

const Table& built_in_table() {
  static const Table table;
  return table;
}

Choice Table::select(Op op, std::size_t bytes, const Topology& topology) const {
  if (op == Op::exscan) op = Op::scan;
  for (std::size_t i = first_[static_cast<std::size_t>(op)]; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.op == op && row.holds(bytes, topology)) return row.choice;
  }
  assert(false && "a call without a line in the table");
  return {};
}

std::string Table::explain(const Topology& topology) const {
  std::string text;
  const Row* last = nullptr;  // The last row that fits.
  std::size_t from = 0, last_from = 0, last_begin = 0;
  for (const Row& row : rows_) {
    if (!row.fits(topology)) continue;
    const bool goes_on = last != nullptr && last->op == row.op;
    if (!goes_on) from = 0;
    const std::size_t limit = row.limit(topology.ranks, topology.nodes);
    if (from > 0 && limit <= from) continue;
    if (goes_on && last->choice == row.choice) {
      text.resize(last_begin);
      from = last_from;
    }
    last = &row;
    last_from = from;
    last_begin = text.size();
    std::string range = "any size";
    if (limit != unlimited) {
      range = "up to " + size_text(limit);
    } else if (from > 0) {
      range = "above " + size_text(from);
    }
    text += std::string(transport::to_string(row.op)) + ", " + range + ": " +
            to_string(row.choice.algorithm) + " (" + std::string(row.choice.why) + ")\n";
    from = limit;
  }
  return text;
}

}  // namespace dlaunch::algorithms
