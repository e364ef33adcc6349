#include "collectives/algorithms/select/select.hpp"

#include "collectives/transport/shm/shm_group.hpp"

#include <array>

namespace dlaunch::algorithms {
namespace {

using transport::Op;

constexpr std::size_t KiB = 1024;
constexpr std::size_t line_bytes = transport::ShmGroup::payload_bytes_max;
/// With more ranks, not every pair gets a connection if another way gives the same bits.
constexpr int pairs_max = 64;
constexpr std::string_view few_connections =
    "over a connection to each neighbour, not to all ranks";
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
constexpr std::array lines = {
    // Ranks that share memory: what takes least comes first, since a look here is part of it.
    Row{.op = Op::all_reduce, .shared = true, .most = line_bytes, .choice = in_line},
    Row{.op = Op::all_reduce, .shared = true, .most = told_bytes_min - 1, .choice = at_once},
    Row{.op = Op::all_reduce, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::all_reduce,
        .shared = true,
        .ranks_max = 2,
        .name = "shared.all_reduce.one_shot.two_ranks",
        .choice = at_once},
    Row{.op = Op::all_reduce,
        .shared = true,
        .ranks_min = 3,
        .most = 4 * KiB,
        .name = "shared.all_reduce.one_shot",
        .choice = at_once},
    Row{.op = Op::all_reduce, .shared = true, .choice = in_slices},
    Row{.op = Op::barrier, .shared = true, .choice = in_line},
    Row{.op = Op::broadcast, .shared = true, .most = line_bytes, .choice = in_line},
    Row{.op = Op::broadcast, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::broadcast, .shared = true, .choice = through_slots},
    Row{.op = Op::all_gather, .shared = true, .most = line_bytes, .choice = in_line},
    Row{.op = Op::all_gather, .shared = true, .most = told_bytes_min - 1, .choice = through_slots},
    Row{.op = Op::all_gather, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::all_gather, .shared = true, .choice = through_slots},
    Row{.op = Op::reduce_scatter, .shared = true, .most = told_bytes_min - 1, .choice = in_pieces},
    Row{.op = Op::reduce_scatter, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::reduce_scatter, .shared = true, .choice = in_pieces},
    Row{.op = Op::all_to_all, .shared = true, .most = told_bytes_min - 1, .choice = in_pieces},
    Row{.op = Op::all_to_all, .shared = true, .registered = true, .choice = in_place},
    Row{.op = Op::all_to_all, .shared = true, .choice = in_pieces},
    Row{.op = Op::reduce,
        .shared = true,
        .ranks_max = 2,
        .most = 8 * KiB,
        .ceiling = transport::ShmGroup::slot_bytes,
        .name = "shared.reduce.one_shot.two_ranks",
        .choice = at_once},
    Row{.op = Op::reduce,
        .shared = true,
        .ranks_min = 3,
        .most = 4 * KiB,
        .ceiling = transport::ShmGroup::slot_bytes,
        .name = "shared.reduce.one_shot",
        .choice = at_once},
    Row{.op = Op::reduce, .shared = true, .choice = in_slices},
    Row{.op = Op::scan,
        .shared = true,
        .choice = {Algorithm::gathered, "up to 1 MiB of all ranks with one synchronisation"}},
    Row{.op = Op::gather, .shared = true, .choice = through_slots},
    Row{.op = Op::scatter, .shared = true, .choice = in_pieces},

    // Ranks that do not, but some of which do.
    Row{.op = Op::barrier, .by_node = true, .choice = one_speaks},
    Row{.op = Op::broadcast, .by_node = true, .choice = one_speaks},
    Row{.op = Op::reduce,
        .by_node = true,
        .measure = Measure::node,
        .most = 32 * KiB,
        .name = "nodes.reduce.leaders",
        .choice = one_speaks},
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
    Row{.op = Op::all_reduce,
        .by_node = true,
        .measure = Measure::node,
        .most = 32 * KiB,
        .name = "nodes.all_reduce.leaders",
        .choice = one_speaks},
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
    Row{.op = Op::all_gather,
        .by_node = true,
        .measure = Measure::node,
        .most = 32 * KiB,
        .name = "nodes.all_gather.leaders",
        .choice = one_speaks},
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
    Row{.op = Op::gather,
        .by_node = true,
        .measure = Measure::node,
        .most = 4 * KiB,
        .name = "nodes.gather.leaders",
        .choice = one_speaks},
    Row{.op = Op::scatter,
        .by_node = true,
        .measure = Measure::node,
        .most = 4 * KiB,
        .name = "nodes.scatter.leaders",
        .choice = one_speaks},

    // Ranks that do not share any.
    Row{.op = Op::barrier,
        .choice = {Algorithm::dissemination, "messages to seven others at once, so few rounds"}},

    Row{.op = Op::broadcast,
        .ranks_max = 2,
        .choice = {Algorithm::tree, "there is but one way to go"}},
    Row{.op = Op::broadcast,
        .most = 64 * KiB,
        .name = "links.broadcast.tree",
        .choice = {Algorithm::tree, "the fewest rounds: each rank that has it tells three others"}},
    Row{.op = Op::broadcast,
        .measure = Measure::each,
        .most = 2 * KiB,
        .name = "links.broadcast.tree.parts",
        .choice = {Algorithm::tree, "parts would not be worth a message"}},
    Row{.op = Op::broadcast,
        .choice = {Algorithm::scatter, "the root sends everything once, not once for each rank"}},

    Row{.op = Op::reduce,
        .most = 64 * KiB,
        .name = "links.reduce.tree",
        .choice = {Algorithm::tree, "the fewest messages"}},
    Row{.op = Op::reduce,
        .measure = Measure::each,
        .most = 2 * KiB,
        .name = "links.reduce.tree.parts",
        .choice = {Algorithm::tree, "parts would not be worth a message"}},
    Row{.op = Op::reduce,
        .ranks_min = pairs_max + 1,
        .freedom = Freedom::extends,
        .choice = {Algorithm::chain, few_connections}},
    Row{.op = Op::reduce,
        .choice = {Algorithm::in_parts, "all ranks fold, and none receives everything"}},

    Row{.op = Op::all_reduce,
        .ranks_max = 2,
        .choice = {Algorithm::exchange, "one round, and no way moves fewer bytes"}},
    Row{.op = Op::all_reduce,
        .measure = Measure::all,
        .most = 64 * KiB,
        .name = "links.all_reduce.bruck",
        .choice = {Algorithm::bruck, "everyone's data to everyone in the fewest rounds"}},
    Row{.op = Op::all_reduce,
        .measure = Measure::each,
        .most = 16 * KiB,
        .freedom = Freedom::any,
        .name = "links.all_reduce.any_order.halving",
        .choice = {Algorithm::halving, "few messages, and all ranks fold"}},
    Row{.op = Op::all_reduce,
        .ranks_max = pairs_max,
        .measure = Measure::each,
        .freedom = Freedom::any,
        .name = "links.all_reduce.any_order.in_parts",
        .choice = {Algorithm::in_parts, "the fewest bytes, and all ranks fold"}},
    Row{.op = Op::all_reduce,
        .freedom = Freedom::any,
        .choice = {Algorithm::ring, "the fewest bytes, over two connections of each rank"}},
    Row{.op = Op::all_reduce,
        .measure = Measure::each,
        .most = 2 * KiB,
        .name = "links.all_reduce.tree.parts",
        .choice = {Algorithm::tree, "the fewest messages; parts would not be worth one"}},
    Row{.op = Op::all_reduce,
        .ranks_min = pairs_max + 1,
        .freedom = Freedom::extends,
        .choice = {Algorithm::chain, few_connections}},
    Row{.op = Op::all_reduce,
        .choice = {Algorithm::in_parts, "the fewest bytes, and all ranks fold"}},

    Row{.op = Op::all_gather,
        .ranks_max = 2,
        .choice = {Algorithm::exchange, "there is but one way to go"}},
    Row{.op = Op::all_gather,
        .measure = Measure::all,
        .most = 64 * KiB,
        .name = "links.all_gather.bruck",
        .choice = {Algorithm::bruck, "the fewest rounds"}},
    Row{.op = Op::all_gather,
        .choice = {Algorithm::ring, "every link is busy, and none carries more than it must"}},

    Row{.op = Op::gather,
        .ranks_min = 17,
        .most = 4 * KiB,
        .name = "links.gather.tree",
        .choice = {Algorithm::tree, "the root receives few messages"}},
    Row{.op = Op::gather, .choice = {Algorithm::direct, "no byte is sent twice"}},
    Row{.op = Op::scatter,
        .ranks_min = 17,
        .most = 4 * KiB,
        .name = "links.scatter.tree",
        .choice = {Algorithm::tree, "the root sends few messages"}},
    Row{.op = Op::scatter, .choice = {Algorithm::direct, "no byte is sent twice"}},

    Row{.op = Op::reduce_scatter,
        .ranks_min = pairs_max + 1,
        .freedom = Freedom::extends,
        .choice = {Algorithm::kept_part, few_connections}},
    Row{.op = Op::reduce_scatter,
        .choice = {Algorithm::in_parts, "the fewest bytes, and all ranks fold"}},

    Row{.op = Op::all_to_all,
        .ranks_min = 8,
        .most = 256,
        .name = "links.all_to_all.bruck",
        .choice = {Algorithm::bruck, "log2 n messages of many small parts"}},
    Row{.op = Op::all_to_all, .choice = {Algorithm::direct, "no byte is sent twice"}},

    Row{.op = Op::scan,
        .measure = Measure::all,
        .most = 64 * KiB,
        .name = "links.scan.gathered",
        .choice = {Algorithm::gathered, "the fewest rounds"}},
    Row{.op = Op::scan,
        .freedom = Freedom::extends,
        .choice = {Algorithm::chain, "each rank sends and receives its data's size once"}},
    Row{.op = Op::scan, .choice = {Algorithm::gathered, "it cannot be taken apart"}},
};
static_assert(lines.size() < 256);

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
    case Algorithm::kept_part:
      return "part of an all_reduce";
    case Algorithm::gathered:
      return "gathered";
  }
  return "";
}

Table::Table() : rows_(lines.begin(), lines.end()) { sum_up(); }

}  // namespace dlaunch::algorithms
