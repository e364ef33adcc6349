#pragma once

#include "collectives/algorithms/select/select.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <algorithm>
#include <array>

/// The lines of the table, as they are in the tree.
namespace dlaunch::algorithms::rows {

using transport::Op;

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t line_bytes = transport::ShmGroup::payload_bytes_max;
/// The most ranks of which every pair gets a connection, if another way gives the same bits.
inline constexpr int pairs_max = 64;
inline constexpr std::string_view few_connections =
    "over a connection to each neighbour, not to all ranks";
/// The smallest buffer whose place is worth telling: smaller ones are copied sooner.
inline constexpr std::size_t told_bytes_min = KiB;

inline constexpr Choice in_line{Shared::flag_line, "no second cache line has to be fetched"};
inline constexpr Choice through_slots{Shared::slots, "chunks of 128 KiB stay in the cache"};
inline constexpr Choice in_pieces{Shared::slots, "a slot of 512 KiB has a piece for each rank"};
inline constexpr Choice in_place{Shared::in_place,
                                 "all buffers are registered: no copy on the way"};
inline constexpr Choice at_once{Shared::one_shot,
                                "one synchronisation, where two cost more than folds"};
inline constexpr Choice in_slices{Shared::two_shot,
                                  "everyone folds its slice only, in chunks of 128 KiB"};

inline constexpr Choice one_speaks{ByNode::leaders, "one message from node to node, not many"};
inline constexpr Choice all_speak{ByNode::slices, "a node folds before anything leaves it"};
inline constexpr Choice in_turn{ByNode::chain, "a node folds onto what those before it came to"};

struct Named {
  Algorithm algorithm;
  const char* name;
};
inline constexpr Named names[] = {{Messages::exchange, "exchange"},
                                  {Messages::bruck, "Bruck"},
                                  {Messages::tree, "tree"},
                                  {Messages::in_parts, "in parts"},
                                  {Messages::scatter, "scatter and ring"},
                                  {Messages::ring, "ring"},
                                  {Messages::halving, "halving"},
                                  {Messages::dissemination, "dissemination"},
                                  {Messages::direct, "direct"},
                                  {Messages::chain, "chain"},
                                  {Messages::kept_part, "part of an all_reduce"},
                                  {Messages::gathered, "gathered"},
                                  {ByNode::leaders, "leaders"},
                                  {ByNode::slices, "slices"},
                                  {ByNode::chain, "chain"},
                                  {Shared::flag_line, "flag line"},
                                  {Shared::one_shot, "one shot"},
                                  {Shared::two_shot, "two shots"},
                                  {Shared::slots, "slots"},
                                  {Shared::in_place, "in place"},
                                  {Shared::gathered, "gathered"}};
/// Empty for one without a name.
constexpr const char* name_of(Algorithm algorithm) noexcept {
  for (const Named& each : names) {
    if (each.algorithm == algorithm) return each.name;
  }
  return "";
}

/// The limits are round numbers near those of other libraries; the costs of links differ more than
/// the limits do.
inline constexpr std::array built_in = {
    // Ranks that share memory: the cheapest algorithms come first, since the search here is part of
    // their cost.
    Row{.op = Op::all_reduce, .most = line_bytes, .choice = in_line},
    Row{.op = Op::all_reduce, .most = told_bytes_min - 1, .choice = at_once},
    Row{.op = Op::all_reduce, .registered = true, .choice = in_place},
    Row{.op = Op::all_reduce,
        .ranks_max = 2,
        .name = "shared.all_reduce.one_shot.two_ranks",
        .choice = at_once},
    Row{.op = Op::all_reduce,
        .ranks_min = 3,
        .most = 4 * KiB,
        .name = "shared.all_reduce.one_shot",
        .choice = at_once},
    Row{.op = Op::all_reduce, .choice = in_slices},
    Row{.op = Op::barrier, .choice = in_line},
    Row{.op = Op::broadcast, .most = line_bytes, .choice = in_line},
    Row{.op = Op::broadcast, .registered = true, .choice = in_place},
    Row{.op = Op::broadcast, .choice = through_slots},
    Row{.op = Op::all_gather, .most = line_bytes, .choice = in_line},
    Row{.op = Op::all_gather, .most = told_bytes_min - 1, .choice = through_slots},
    Row{.op = Op::all_gather, .registered = true, .choice = in_place},
    Row{.op = Op::all_gather, .choice = through_slots},
    Row{.op = Op::reduce_scatter, .most = told_bytes_min - 1, .choice = in_pieces},
    Row{.op = Op::reduce_scatter, .registered = true, .choice = in_place},
    Row{.op = Op::reduce_scatter, .choice = in_pieces},
    Row{.op = Op::all_to_all, .most = told_bytes_min - 1, .choice = in_pieces},
    Row{.op = Op::all_to_all, .registered = true, .choice = in_place},
    Row{.op = Op::all_to_all, .choice = in_pieces},
    Row{.op = Op::reduce,
        .ranks_max = 2,
        .most = 8 * KiB,
        .ceiling = transport::ShmGroup::slot_bytes,
        .name = "shared.reduce.one_shot.two_ranks",
        .choice = at_once},
    Row{.op = Op::reduce,
        .ranks_min = 3,
        .most = 4 * KiB,
        .ceiling = transport::ShmGroup::slot_bytes,
        .name = "shared.reduce.one_shot",
        .choice = at_once},
    Row{.op = Op::reduce, .choice = in_slices},
    Row{.op = Op::scan,
        .choice = {Shared::gathered, "up to 1 MiB of all ranks with one synchronisation"}},
    Row{.op = Op::gather, .choice = through_slots},
    Row{.op = Op::scatter, .choice = in_pieces},

    // Ranks that do not all share memory, but some of which do.
    Row{.op = Op::barrier, .choice = one_speaks},
    Row{.op = Op::broadcast, .choice = one_speaks},
    Row{.op = Op::reduce,
        .measure = Measure::node,
        .most = 32 * KiB,
        .name = "nodes.reduce.leaders",
        .choice = one_speaks},
    Row{.op = Op::reduce,
        .in_order = true,
        .nodes_max = 2,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::reduce, .freedom = Freedom::any, .choice = all_speak},
    Row{.op = Op::reduce, .in_order = true, .freedom = Freedom::neighbours, .choice = all_speak},
    Row{.op = Op::reduce, .in_order = true, .freedom = Freedom::extends, .choice = in_turn},
    Row{.op = Op::all_reduce,
        .measure = Measure::node,
        .most = 32 * KiB,
        .name = "nodes.all_reduce.leaders",
        .choice = one_speaks},
    Row{.op = Op::all_reduce,
        .in_order = true,
        .nodes_max = 2,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::all_reduce, .freedom = Freedom::any, .choice = all_speak},
    Row{.op = Op::all_reduce,
        .in_order = true,
        .freedom = Freedom::neighbours,
        .choice = all_speak},
    Row{.op = Op::all_reduce, .in_order = true, .freedom = Freedom::extends, .choice = in_turn},
    Row{.op = Op::all_gather,
        .measure = Measure::node,
        .most = 32 * KiB,
        .name = "nodes.all_gather.leaders",
        .choice = one_speaks},
    Row{.op = Op::all_gather,
        .in_order = true,
        .even = true,
        .choice = {ByNode::slices, "every rank of a node sends its part to the others"}},
    Row{.op = Op::reduce_scatter,
        .in_order = true,
        .even = true,
        .freedom = Freedom::extends,
        .choice = in_turn},
    Row{.op = Op::gather,
        .measure = Measure::node,
        .most = 4 * KiB,
        .name = "nodes.gather.leaders",
        .choice = one_speaks},
    Row{.op = Op::scatter,
        .measure = Measure::node,
        .most = 4 * KiB,
        .name = "nodes.scatter.leaders",
        .choice = one_speaks},

    // Ranks that share no memory.
    Row{.op = Op::barrier,
        .choice = {Messages::dissemination, "messages to seven others at once, so few rounds"}},

    Row{.op = Op::broadcast,
        .ranks_max = 2,
        .choice = {Messages::tree, "there is but one way to go"}},
    Row{.op = Op::broadcast,
        .most = 64 * KiB,
        .name = "links.broadcast.tree",
        .choice = {Messages::tree, "the fewest rounds: each rank that has it tells three others"}},
    Row{.op = Op::broadcast,
        .measure = Measure::each,
        .most = 2 * KiB,
        .name = "links.broadcast.tree.parts",
        .choice = {Messages::tree, "parts would not be worth a message"}},
    Row{.op = Op::broadcast,
        .choice = {Messages::scatter, "the root sends everything once, not once for each rank"}},

    Row{.op = Op::reduce,
        .most = 64 * KiB,
        .name = "links.reduce.tree",
        .choice = {Messages::tree, "the fewest messages"}},
    Row{.op = Op::reduce,
        .measure = Measure::each,
        .most = 2 * KiB,
        .name = "links.reduce.tree.parts",
        .choice = {Messages::tree, "parts would not be worth a message"}},
    Row{.op = Op::reduce,
        .ranks_min = pairs_max + 1,
        .freedom = Freedom::extends,
        .choice = {Messages::chain, few_connections}},
    Row{.op = Op::reduce,
        .choice = {Messages::in_parts, "all ranks fold, and none receives everything"}},

    Row{.op = Op::all_reduce,
        .ranks_max = 1,
        .choice = {Messages::in_parts, "there is no other rank"}},
    Row{.op = Op::all_reduce,
        .ranks_max = 2,
        .choice = {Messages::exchange, "one round, and no way moves fewer bytes"}},
    Row{.op = Op::all_reduce,
        .measure = Measure::all,
        .most = 64 * KiB,
        .name = "links.all_reduce.bruck",
        .choice = {Messages::bruck, "everyone's data to everyone in the fewest rounds"}},
    Row{.op = Op::all_reduce,
        .measure = Measure::each,
        .most = 16 * KiB,
        .freedom = Freedom::any,
        .name = "links.all_reduce.any_order.halving",
        .choice = {Messages::halving, "few messages, and all ranks fold"}},
    Row{.op = Op::all_reduce,
        .ranks_max = pairs_max,
        .measure = Measure::each,
        .freedom = Freedom::any,
        .name = "links.all_reduce.any_order.in_parts",
        .choice = {Messages::in_parts, "the fewest bytes, and all ranks fold"}},
    Row{.op = Op::all_reduce,
        .freedom = Freedom::any,
        .choice = {Messages::ring, "the fewest bytes, over two connections of each rank"}},
    Row{.op = Op::all_reduce,
        .measure = Measure::each,
        .most = 2 * KiB,
        .name = "links.all_reduce.tree.parts",
        .choice = {Messages::tree, "the fewest messages; parts would not be worth one"}},
    Row{.op = Op::all_reduce,
        .ranks_min = pairs_max + 1,
        .freedom = Freedom::extends,
        .choice = {Messages::chain, few_connections}},
    Row{.op = Op::all_reduce,
        .choice = {Messages::in_parts, "the fewest bytes, and all ranks fold"}},

    Row{.op = Op::all_gather,
        .ranks_max = 2,
        .choice = {Messages::exchange, "there is but one way to go"}},
    Row{.op = Op::all_gather,
        .measure = Measure::all,
        .most = 64 * KiB,
        .name = "links.all_gather.bruck",
        .choice = {Messages::bruck, "the fewest rounds"}},
    Row{.op = Op::all_gather,
        .choice = {Messages::ring, "every link is busy, and none carries more than it must"}},

    Row{.op = Op::gather,
        .ranks_min = 17,
        .most = 4 * KiB,
        .name = "links.gather.tree",
        .choice = {Messages::tree, "the root receives few messages"}},
    Row{.op = Op::gather, .choice = {Messages::direct, "no byte is sent twice"}},
    Row{.op = Op::scatter,
        .ranks_min = 17,
        .most = 4 * KiB,
        .name = "links.scatter.tree",
        .choice = {Messages::tree, "the root sends few messages"}},
    Row{.op = Op::scatter, .choice = {Messages::direct, "no byte is sent twice"}},

    Row{.op = Op::reduce_scatter,
        .ranks_min = pairs_max + 1,
        .freedom = Freedom::extends,
        .choice = {Messages::kept_part, few_connections}},
    Row{.op = Op::reduce_scatter,
        .choice = {Messages::in_parts, "the fewest bytes, and all ranks fold"}},

    Row{.op = Op::all_to_all,
        .ranks_min = 8,
        .most = 256,
        .name = "links.all_to_all.bruck",
        .choice = {Messages::bruck, "log2 n messages of many small parts"}},
    Row{.op = Op::all_to_all, .choice = {Messages::direct, "no byte is sent twice"}},

    Row{.op = Op::scan,
        .measure = Measure::all,
        .most = 64 * KiB,
        .name = "links.scan.gathered",
        .choice = {Messages::gathered, "the fewest rounds"}},
    Row{.op = Op::scan,
        .freedom = Freedom::extends,
        .choice = {Messages::chain, "each rank sends and receives its data's size once"}},
    Row{.op = Op::scan, .choice = {Messages::gathered, "it cannot be taken apart"}},
};
static_assert(built_in.size() < 256);
static_assert(std::all_of(built_in.begin(), built_in.end(),
                          [](const Row& row) { return *name_of(row.choice.algorithm) != '\0'; }));

/// Whether the row holds for all calls of its operation that its family can serve.
constexpr bool has_no_condition(const Row& row) {
  return !row.registered && !row.in_order && !row.even && row.ranks_min == 1 &&
         row.ranks_max == any_number && row.most == unlimited && row.ceiling == unlimited &&
         row.freedom == Freedom::none;
}
/// Whether some row holds for every call that the others leave over.
constexpr bool serves_all(Op op, Family family) {
  for (const Row& row : built_in) {
    if (row.op == op && row.choice.algorithm.family() == family && has_no_condition(row))
      return true;
  }
  return false;
}
static_assert(
    [] {
      for (const Row& row : built_in) {
        if (!serves_all(row.op, Family::messages) || !serves_all(row.op, Family::shared)) {
          return false;
        }
      }
      return true;
    }(),
    "a line for every call of an operation, whether its ranks share memory or not");

}  // namespace dlaunch::algorithms::rows
