#include "collectives/algorithms/select.hpp"

#include <algorithm>
#include <array>
#include <cassert>

namespace dlaunch::algorithms {
namespace {

using transport::Op;

constexpr std::size_t KiB = 1024;

/// Sizes are round numbers near where the peers have theirs; what a link costs differs more than
/// they do.
constexpr std::array rows = {
    Row{.op = Op::barrier,
        .choice = {Algorithm::dissemination, "messages to seven others at once, so few rounds"}},

    Row{.op = Op::broadcast,
        .ranks_max = 2,
        .choice = {Algorithm::tree, "there is but one way to go"}},
    Row{.op = Op::broadcast,
        .bytes_max = 64 * KiB,
        .choice = {Algorithm::tree, "the fewest rounds: each rank that has it tells three others"}},
    Row{.op = Op::broadcast,
        .each_bytes_max = 2 * KiB,
        .choice = {Algorithm::tree, "parts would not be worth a message"}},
    Row{.op = Op::broadcast,
        .choice = {Algorithm::scatter, "the root sends everything once, not once for each rank"}},

    Row{.op = Op::reduce,
        .bytes_max = 64 * KiB,
        .choice = {Algorithm::tree, "the fewest messages"}},
    Row{.op = Op::reduce,
        .each_bytes_max = 2 * KiB,
        .choice = {Algorithm::tree, "parts would not be worth a message"}},
    Row{.op = Op::reduce,
        .choice = {Algorithm::in_parts, "all ranks fold, and none receives everything"}},

    Row{.op = Op::all_reduce,
        .ranks_max = 2,
        .choice = {Algorithm::exchange, "one round, and no way moves fewer bytes"}},
    Row{.op = Op::all_reduce,
        .all_bytes_max = 64 * KiB,
        .choice = {Algorithm::bruck, "everyone's data to everyone in the fewest rounds"}},
    Row{.op = Op::all_reduce,
        .each_bytes_max = 2 * KiB,
        .choice = {Algorithm::tree, "the fewest messages; parts would not be worth one"}},
    Row{.op = Op::all_reduce,
        .choice = {Algorithm::in_parts, "the fewest bytes, and all ranks fold"}},

    Row{.op = Op::all_gather,
        .ranks_max = 2,
        .choice = {Algorithm::exchange, "there is but one way to go"}},
    Row{.op = Op::all_gather,
        .all_bytes_max = 64 * KiB,
        .choice = {Algorithm::bruck, "the fewest rounds"}},
    Row{.op = Op::all_gather,
        .choice = {Algorithm::ring, "every link is busy, and none carries more than it must"}},

    Row{.op = Op::gather,
        .ranks_min = 17,
        .bytes_max = 4 * KiB,
        .choice = {Algorithm::tree, "the root receives few messages"}},
    Row{.op = Op::gather, .choice = {Algorithm::direct, "no byte is sent twice"}},
    Row{.op = Op::scatter,
        .ranks_min = 17,
        .bytes_max = 4 * KiB,
        .choice = {Algorithm::tree, "the root sends few messages"}},
    Row{.op = Op::scatter, .choice = {Algorithm::direct, "no byte is sent twice"}},

    Row{.op = Op::reduce_scatter,
        .choice = {Algorithm::in_parts, "the fewest bytes, and all ranks fold"}},

    Row{.op = Op::all_to_all,
        .ranks_min = 8,
        .bytes_max = 256,
        .choice = {Algorithm::bruck, "log2 n messages of many small parts"}},
    Row{.op = Op::all_to_all, .choice = {Algorithm::direct, "no byte is sent twice"}},
};

std::string size_text(std::size_t bytes) {
  if (bytes >= KiB && bytes % KiB == 0) return std::to_string(bytes / KiB) + " KiB";
  return std::to_string(bytes) + " bytes";
}

}  // namespace

const char* to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::exchange:
      return "exchange";
    case Algorithm::bruck:
      return "Bruck";
    case Algorithm::tree:
      return "tree";
    case Algorithm::in_parts:
      return "in parts";
    case Algorithm::scatter:
      return "scatter and ring";
    case Algorithm::ring:
      return "ring";
    case Algorithm::dissemination:
      return "dissemination";
    case Algorithm::direct:
      return "direct";
  }
  return "";
}

std::size_t Row::limit(int ranks) const {
  constexpr std::size_t unlimited = ~std::size_t{0};
  const auto n = static_cast<std::size_t>(ranks);
  std::size_t most =
      std::min(bytes_max, all_bytes_max == unlimited ? unlimited : all_bytes_max / n);
  if (each_bytes_max != unlimited) most = std::min(most, each_bytes_max * n);
  return most;
}

bool Row::holds(std::size_t bytes, int ranks) const {
  return ranks >= ranks_min && ranks <= ranks_max && bytes <= limit(ranks);
}

std::span<const Row> table() { return rows; }

Choice select(Op op, std::size_t bytes, const Topology& topology) {
  for (const Row& row : rows) {
    if (row.op == op && row.holds(bytes, topology.ranks)) return row.choice;
  }
  assert(false && "a call without a line in the table");
  return {};
}

std::string explain(const Topology& topology) {
  std::string text;
  Op last{};
  std::size_t from = 0;
  for (const Row& row : rows) {
    if (row.op != last) from = 0;
    last = row.op;
    if (topology.ranks < row.ranks_min || topology.ranks > row.ranks_max) continue;
    const std::size_t limit = row.limit(topology.ranks);
    if (from > 0 && limit <= from) continue;
    std::string range = "any size";
    if (limit != ~std::size_t{0}) {
      range = "up to " + size_text(limit);
    } else if (from > 0) {
      range = "above " + size_text(from);
    }
    text += std::string(transport::to_string(row.op)) + ", " + range + ": " +
            to_string(row.choice.algorithm) + " (" + row.choice.why + ")\n";
    from = limit;
  }
  return text;
}

}  // namespace dlaunch::algorithms
