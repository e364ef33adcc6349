#include "collectives/algorithms/select.hpp"

#include "collectives/transport/team.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>

namespace dlaunch::algorithms {
namespace {

using transport::Op;

constexpr std::size_t KiB = 1024;
constexpr std::size_t line_bytes = transport::Team::payload_bytes_max;
/// Smaller buffers are copied sooner than their places are told.
constexpr std::size_t told_bytes_min = KiB;

constexpr Choice in_line{Algorithm::flag_line, "no second cache line has to be fetched"};
constexpr Choice through_slots{Algorithm::slots, "chunks of 128 KiB stay in the cache"};
constexpr Choice in_pieces{Algorithm::slots, "a slot of 512 KiB has a piece for each rank"};
constexpr Choice in_place{Algorithm::in_place, "all buffers are registered: no copy on the way"};
constexpr Choice at_once{Algorithm::one_shot,
                         "one synchronisation, where two cost more than folds"};
constexpr Choice in_slices{Algorithm::two_shot,
                           "everyone folds its slice only, in chunks of 128 KiB"};

constexpr Choice one_speaks{Algorithm::leaders, "one message from node to node, not many"};
constexpr Choice all_speak{Algorithm::slices, "a node folds before anything leaves it"};
constexpr Choice in_turn{Algorithm::chain, "a node folds onto what those before it came to"};

/// Sizes are round numbers near where the peers have theirs; what a link costs differs more than
/// they do.
constexpr std::array rows = {
    // Ranks that share memory: what takes least comes first, since a look here is part of it.
    Row{.op = Op::all_reduce, .shared = true, .bytes_max = line_bytes, .choice = in_line},
    Row{.op = Op::all_reduce, .shared = true, .bytes_max = told_bytes_min - 1, .choice = at_once},
    Row{.op = Op::all_reduce, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::all_reduce, .shared = true, .ranks_max = 2, .choice = at_once},
    Row{.op = Op::all_reduce,
        .shared = true,
        .ranks_min = 3,
        .bytes_max = 4 * KiB,
        .choice = at_once},
    Row{.op = Op::all_reduce, .shared = true, .choice = in_slices},
    Row{.op = Op::barrier, .shared = true, .choice = in_line},
    Row{.op = Op::broadcast, .shared = true, .bytes_max = line_bytes, .choice = in_line},
    Row{.op = Op::broadcast, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::broadcast, .shared = true, .choice = through_slots},
    Row{.op = Op::all_gather, .shared = true, .bytes_max = line_bytes, .choice = in_line},
    Row{.op = Op::all_gather,
        .shared = true,
        .bytes_max = told_bytes_min - 1,
        .choice = through_slots},
    Row{.op = Op::all_gather, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::all_gather, .shared = true, .choice = through_slots},
    Row{.op = Op::reduce_scatter,
        .shared = true,
        .bytes_max = told_bytes_min - 1,
        .choice = in_pieces},
    Row{.op = Op::reduce_scatter, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::reduce_scatter, .shared = true, .choice = in_pieces},
    Row{.op = Op::all_to_all, .shared = true, .bytes_max = told_bytes_min - 1, .choice = in_pieces},
    Row{.op = Op::all_to_all, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::all_to_all, .shared = true, .choice = in_pieces},
    Row{.op = Op::reduce, .shared = true, .ranks_max = 2, .bytes_max = 8 * KiB, .choice = at_once},
    Row{.op = Op::reduce, .shared = true, .ranks_min = 3, .bytes_max = 4 * KiB, .choice = at_once},
    Row{.op = Op::reduce, .shared = true, .choice = in_slices},
    Row{.op = Op::gather, .shared = true, .choice = through_slots},
    Row{.op = Op::scatter, .shared = true, .choice = in_pieces},

    // Ranks that do not, but some of which do.
    Row{.op = Op::barrier, .by_node = true, .choice = one_speaks},
    Row{.op = Op::broadcast, .by_node = true, .choice = one_speaks},
    Row{.op = Op::reduce, .by_node = true, .node_bytes_max = 32 * KiB, .choice = one_speaks},
    Row{.op = Op::reduce,
        .by_node = true,
        .in_order = true,
        .nodes_max = 2,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::reduce, .by_node = true, .freedom = Freedom::any, .choice = all_speak},
    Row{.op = Op::reduce,
        .by_node = true,
        .in_order = true,
        .freedom = Freedom::neighbours,
        .choice = all_speak},
    Row{.op = Op::reduce,
        .by_node = true,
        .in_order = true,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::all_reduce, .by_node = true, .node_bytes_max = 32 * KiB, .choice = one_speaks},
    Row{.op = Op::all_reduce,
        .by_node = true,
        .in_order = true,
        .nodes_max = 2,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::all_reduce, .by_node = true, .freedom = Freedom::any, .choice = all_speak},
    Row{.op = Op::all_reduce,
        .by_node = true,
        .in_order = true,
        .freedom = Freedom::neighbours,
        .choice = all_speak},
    Row{.op = Op::all_reduce,
        .by_node = true,
        .in_order = true,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::all_gather, .by_node = true, .node_bytes_max = 32 * KiB, .choice = one_speaks},
    Row{.op = Op::all_gather,
        .by_node = true,
        .in_order = true,
        .even = true,
        .choice = {Algorithm::slices, "every rank of a node sends its part to the others"}},
    Row{.op = Op::reduce_scatter,
        .by_node = true,
        .in_order = true,
        .even = true,
        .freedom = Freedom::extends,
        .choice = in_turn},

    // Ranks that do not share any.
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
        .freedom = Freedom::any,
        .choice = {Algorithm::halving, "few messages, and all ranks fold"}},
    Row{.op = Op::all_reduce,
        .ranks_min = 17,
        .each_bytes_max = 256 * KiB,
        .freedom = Freedom::any,
        .choice = {Algorithm::in_parts, "the fewest bytes, and all ranks fold"}},
    Row{.op = Op::all_reduce,
        .ranks_min = 17,
        .freedom = Freedom::any,
        .choice = {Algorithm::ring, "the fewest bytes, over two connections of each rank"}},
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
    case Algorithm::halving:
      return "halving";
    case Algorithm::dissemination:
      return "dissemination";
    case Algorithm::direct:
      return "direct";
    case Algorithm::flag_line:
      return "flag line";
    case Algorithm::one_shot:
      return "one shot";
    case Algorithm::two_shot:
      return "two shots";
    case Algorithm::slots:
      return "slots";
    case Algorithm::in_place:
      return "in place";
    case Algorithm::leaders:
      return "leaders";
    case Algorithm::slices:
      return "slices";
    case Algorithm::chain:
      return "chain";
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
  constexpr std::size_t unlimited = ~std::size_t{0};
  const auto n = static_cast<std::size_t>(ranks);
  std::size_t most =
      std::min(bytes_max, all_bytes_max == unlimited ? unlimited : all_bytes_max / n);
  if (each_bytes_max != unlimited) most = std::min(most, each_bytes_max * n);
  if (nodes > 0 && node_bytes_max != unlimited) {
    most = std::min(most, node_bytes_max * static_cast<std::size_t>(nodes) / n);
  }
  return most;
}

bool Row::fits(const Topology& topology) const {
  if (by_node && (topology.nodes == 0 || topology.nodes > nodes_max)) return false;
  if ((in_order && !topology.in_order) || (even && !topology.is_even)) return false;
  if (topology.freedom < freedom) return false;
  return shared == topology.shared && (!registered || topology.registered) &&
         topology.ranks >= ranks_min && topology.ranks <= ranks_max;
}

bool Row::holds(std::size_t bytes, const Topology& topology) const {
  return fits(topology) && bytes <= limit(topology.ranks, topology.nodes);
}

std::span<const Row> table() { return rows; }

namespace {

/// Where an operation's lines begin: looking for them would take longer than a small call may.
constexpr auto first_row = [] {
  std::array<std::uint8_t, 256> first{};
  for (std::size_t i = rows.size(); i-- > 0;) {
    first[static_cast<std::size_t>(rows[i].op)] = static_cast<std::uint8_t>(i);
  }
  return first;
}();
static_assert(rows.size() < 256);

}  // namespace

Choice select(Op op, std::size_t bytes, const Topology& topology) {
  for (std::size_t i = first_row[static_cast<std::size_t>(op)]; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (row.op == op && row.holds(bytes, topology)) return row.choice;
  }
  assert(false && "a call without a line in the table");
  return {};
}

std::string explain(const Topology& topology) {
  std::string text;
  const Row* last = nullptr;  // Of those that fit.
  std::size_t from = 0, last_from = 0, last_begin = 0;
  for (const Row& row : rows) {
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
    if (limit != ~std::size_t{0}) {
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
