#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/by_node.hpp"
#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/select/put.hpp"
#include "collectives/algorithms/select/ways.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

namespace dlaunch::algorithms {
namespace {

using by_node::Nodes;
using shared::Parts;
using transport::Op;
using Buffer = std::span<std::byte>;

/// Bytes of all ranks together that fold_gathered gathers at a time, at most.
constexpr std::size_t scan_chunk_max = 1u << 20;

/// An operation's algorithms for ranks that do not all share memory.
template <class... Arguments>
struct Served {
  Op op;
  Way<Messages, void(Mesh&, Arguments...)> messages[12];  // Room for all algorithms.
  Way<ByNode, void(Mesh&, const Nodes&, Arguments...)> by_node[3] = {};

  constexpr bool is_whole() const {
    return algorithms::is_whole(messages, op) && algorithms::is_whole(by_node, op);
  }
};

/// What a call moves, by which its algorithm is selected.
struct CallSize {
  std::size_t bytes = 0;  ///< Bytes as Table::select counts them.
  Freedom freedom = Freedom::none;
  bool is_even = true;  ///< Whether every rank gives as much.
};

Algorithm select(const Ranks& ranks, Op op, const CallSize& call) {
  Topology here{.ranks = ranks.mesh.size(), .freedom = call.freedom};
  if (ranks.nodes != nullptr) {
    here = topology_of(ranks.nodes->layout(), call.freedom);
    here.is_even = here.is_even && call.is_even;
  }
  return ranks.mesh.table().select(op, call.bytes, here).algorithm;
}

template <class... Arguments>
void run(const Served<Arguments...>& served, const Ranks& ranks, const CallSize& call,
         std::type_identity_t<Arguments>... arguments) {
  const Algorithm how = select(ranks, served.op, call);
  switch (how.family()) {
    case Family::messages:
      return way_of(served.messages, how.as<Messages>())(ranks.mesh, arguments...);
    case Family::by_node:
      return way_of(served.by_node, how.as<ByNode>())(ranks.mesh, *ranks.nodes, arguments...);
    case Family::shared:
      assert(false && "such ranks have gone another way");
  }
}

/// Nodes of one rank each, so that a chain goes from rank to rank.
Nodes each_alone(const Mesh& mesh) {
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(mesh.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return Nodes(Layout(numbers), mesh.rank(), nullptr);
}

void reduce_in_chain(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  by_node::reduce_in_chain(mesh, each_alone(mesh), in, out, root, reducer);
}
void all_reduce_in_chain(Mesh& mesh, Buffer data, const Reducer& reducer) {
  by_node::all_reduce_in_chain(mesh, each_alone(mesh), data, reducer);
}
void all_reduce_tree(Mesh& mesh, Buffer data, const Reducer& reducer) {
  reduce_tree(mesh, data, data.data(), 0, reducer);
  broadcast_tree(mesh, data, 0);
}
void all_gather_round_ring(Mesh& mesh, const RankParts& data) { all_gather_ring(mesh, data); }
void gather_equal(Mesh& mesh, BytesView mine, std::byte* all, int root) {
  gather_direct(mesh, mine, {all, Offsets(mesh.size(), mine.size())}, root);
}
void scatter_equal(Mesh& mesh, const std::byte* all, Buffer mine, int root) {
  scatter_direct(mesh, {all, Offsets(mesh.size(), mine.size())}, mine, root);
}
void all_to_all_equal(Mesh& mesh, const std::byte* in, std::byte* out, std::size_t each) {
  const Offsets parts(mesh.size(), each);
  all_to_all_direct(mesh, {in, parts}, {out, parts});
}
/// Reduces everything on all ranks, and copies this rank's part to `out`.
void keep_part(Mesh& mesh, const ConstRankParts& in, std::byte* out, const Reducer& reducer) {
  const auto all = mesh.buffer_pool().take(in.bytes());
  copy_parts(in, all.get());
  all_reduce(mesh, {all.get(), in.bytes()}, reducer);
  put(out, all.get() + begin_of_part(in.offsets(), mesh.rank()), in.size(mesh.rank()));
}

/// Every rank gathers all ranks' data, a chunk at a time, and reduces that of the first `before`
/// ranks; of none: it writes nothing.
void fold_gathered(const Ranks& ranks, BytesView in, std::byte* out, const Reducer& reducer,
                   int before) {
  const auto n = static_cast<std::size_t>(ranks.mesh.size());
  const std::size_t element = reducer.element_bytes();
  const std::size_t chunk_max = std::max<std::size_t>(scan_chunk_max / n / element, 1) * element;
  const auto all = ranks.mesh.buffer_pool().take(std::min(chunk_max, in.size()) * n);
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(before));
  std::size_t begin = 0;
  do {
    const auto chunk = in.subspan(begin, std::min(chunk_max, in.size() - begin));
    const std::size_t own = static_cast<std::size_t>(ranks.mesh.rank()) * chunk.size();
    if (!chunk.empty()) std::memcpy(all.get() + own, chunk.data(), chunk.size());
    all_gather(ranks, {all.get(), Offsets(ranks.mesh.size(), chunk.size())});
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = all.get() + i * chunk.size();
    if (before > 0) reducer(inputs, out + begin, chunk.size() / element);
    begin += chunk.size();
  } while (begin < in.size());
}

/// Whether elements do not go into the chunks of the other algorithms.
bool has_large_elements(const Ranks& ranks, const Reducer& reducer) {
  return reducer.element_bytes() > element_bytes_max(static_cast<std::size_t>(ranks.mesh.size()));
}
/// For large elements.
void reduce_gathered(const Ranks& ranks, BytesView in, std::byte* out, const Reducer& reducer) {
  fold_gathered(ranks, in, out, reducer, ranks.mesh.size());
}
/// The same, of which this rank keeps its part.
void reduce_scatter_gathered(const Ranks& ranks, const ConstRankParts& in, std::byte* out,
                             const Reducer& reducer) {
  const auto all = ranks.mesh.buffer_pool().take(in.bytes());
  copy_parts(in, all.get());
  reduce_gathered(ranks, all.bytes(), all.get(), reducer);
  put(out, all.get() + begin_of_part(in.offsets(), ranks.mesh.rank()), in.size(ranks.mesh.rank()));
}

constexpr Served<> barriers{Op::barrier,
                            {{Messages::dissemination, barrier_dissemination}},
                            {{ByNode::leaders, by_node::barrier}}};
constexpr Served<Buffer, int> broadcasts{
    Op::broadcast,
    {{Messages::tree, broadcast_tree}, {Messages::scatter, broadcast_scatter}},
    {{ByNode::leaders, by_node::broadcast}}};
constexpr Served<BytesView, std::byte*, int, const Reducer&> reduces{
    Op::reduce,
    {{Messages::tree, reduce_tree},
     {Messages::in_parts, reduce_in_parts},
     {Messages::chain, reduce_in_chain}},
    {{ByNode::leaders, by_node::reduce_by_leaders},
     {ByNode::slices, by_node::reduce_in_slices},
     {ByNode::chain, by_node::reduce_in_chain}}};
constexpr Served<Buffer, const Reducer&> all_reduces{
    Op::all_reduce,
    {{Messages::exchange, all_reduce_exchange},
     {Messages::bruck, all_reduce_bruck},
     {Messages::tree, all_reduce_tree},
     {Messages::in_parts, all_reduce_in_parts},
     {Messages::halving, all_reduce_halving},
     {Messages::ring, all_reduce_ring},
     {Messages::chain, all_reduce_in_chain}},
    {{ByNode::leaders, by_node::all_reduce_by_leaders},
     {ByNode::slices, by_node::all_reduce_in_slices},
     {ByNode::chain, by_node::all_reduce_in_chain}}};
constexpr Served<const RankParts&> all_gathers{Op::all_gather,
                                               {{Messages::exchange, all_gather_round_ring},
                                                {Messages::bruck, all_gather_bruck},
                                                {Messages::ring, all_gather_round_ring}},
                                               {{ByNode::leaders, by_node::all_gather_by_leaders},
                                                {ByNode::slices, by_node::all_gather_in_slices}}};
constexpr Served<const ConstRankParts&, std::byte*, const Reducer&> reduce_scatters{
    Op::reduce_scatter,
    {{Messages::in_parts, reduce_scatter_in_parts}, {Messages::kept_part, keep_part}},
    {{ByNode::chain, by_node::reduce_scatter_in_chain}}};
constexpr Served<BytesView, std::byte*, int> gathers{
    Op::gather,
    {{Messages::tree, gather_tree}, {Messages::direct, gather_equal}},
    {{ByNode::leaders, by_node::gather_by_leaders}}};
constexpr Served<const std::byte*, Buffer, int> scatters{
    Op::scatter,
    {{Messages::tree, scatter_tree}, {Messages::direct, scatter_equal}},
    {{ByNode::leaders, by_node::scatter_by_leaders}}};
constexpr Served<const std::byte*, std::byte*, std::size_t> all_to_alls{
    Op::all_to_all, {{Messages::bruck, all_to_all_bruck}, {Messages::direct, all_to_all_equal}}};
static_assert(barriers.is_whole() && broadcasts.is_whole() && reduces.is_whole());
static_assert(all_reduces.is_whole() && all_gathers.is_whole() && reduce_scatters.is_whole());
static_assert(gathers.is_whole() && scatters.is_whole() && all_to_alls.is_whole());

}  // namespace

void apart::barrier(const Ranks& ranks) { run(barriers, ranks, {}); }

void apart::broadcast(const Ranks& ranks, std::span<std::byte> data, int root) {
  run(broadcasts, ranks, {data.size()}, data, root);
}

void reduce(const Ranks& ranks, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  if (has_large_elements(ranks, reducer)) {
    const bool has_result = ranks.mesh.rank() == root;
    return fold_gathered(ranks, in, out, reducer, has_result ? ranks.mesh.size() : 0);
  }
  if (ranks.shm != nullptr) return shared::reduce(*ranks.shm, in, out, root, reducer);
  run(reduces, ranks, {in.size(), reducer.freedom()}, in, out, root, reducer);
}

void apart::all_reduce(const Ranks& ranks, std::span<std::byte> data, const Reducer& reducer) {
  if (has_large_elements(ranks, reducer)) {
    return reduce_gathered(ranks, data, data.data(), reducer);
  }
  if (ranks.shm != nullptr) return shared::all_reduce(*ranks.shm, data, reducer);
  run(all_reduces, ranks, {data.size(), reducer.freedom()}, data, reducer);
}

/// All algorithms over messages work in the result's place, so the input is copied there first.
void all_reduce(const Ranks& ranks, BytesView in, std::byte* out, const Reducer& reducer) {
  if (has_large_elements(ranks, reducer)) return reduce_gathered(ranks, in, out, reducer);
  if (ranks.shm != nullptr) return shared::all_reduce(*ranks.shm, in, out, reducer);
  put(out, in.data(), in.size());
  apart::all_reduce(ranks, {out, in.size()}, reducer);
}

void apart::all_gather(const Ranks& ranks, const RankParts& data) {
  // All ranks know all parts, so a choice by their mean is the same on all.
  const std::size_t mean = data.bytes() / static_cast<std::size_t>(ranks.mesh.size());
  run(all_gathers, ranks, {mean, Freedom::none, data.offsets().are_equal()}, data);
}

void reduce_scatter(const Ranks& ranks, const ConstRankParts& in, std::byte* out,
                    const Reducer& reducer) {
  if (has_large_elements(ranks, reducer)) {
    return reduce_scatter_gathered(ranks, in, out, reducer);
  }
  if (ranks.shm != nullptr) return shared::reduce_scatter(*ranks.shm, in, out, reducer);
  const std::size_t mean = in.bytes() / static_cast<std::size_t>(ranks.mesh.size());
  run(reduce_scatters, ranks, {mean, reducer.freedom(), in.offsets().are_equal()}, in, out,
      reducer);
}

void gather(const Ranks& ranks, BytesView mine, std::byte* all, int root) {
  if (ranks.shm == nullptr) return run(gathers, ranks, {mine.size()}, mine, all, root);
  const Offsets parts(ranks.mesh.size(), mine.size());
  shared::gather(*ranks.shm, mine, {all, parts}, root, Parts::equal);
}

void scatter(const Ranks& ranks, const std::byte* all, std::span<std::byte> mine, int root) {
  if (ranks.shm == nullptr) return run(scatters, ranks, {mine.size()}, all, mine, root);
  const Offsets parts(ranks.mesh.size(), mine.size());
  shared::scatter(*ranks.shm, {all, parts}, mine, root, Parts::equal);
}

// Each of these has one algorithm: ranks could not choose by sizes that not all of them know.

void gather_v(const Ranks& ranks, BytesView mine, const RankParts& all, int root) {
  if (ranks.shm == nullptr) return gather_direct(ranks.mesh, mine, all, root);
  shared::gather(*ranks.shm, mine, all, root, Parts::differing);
}

void scatter_v(const Ranks& ranks, const ConstRankParts& all, std::span<std::byte> mine, int root) {
  if (ranks.shm == nullptr) return scatter_direct(ranks.mesh, all, mine, root);
  shared::scatter(*ranks.shm, all, mine, root, Parts::differing);
}

void all_to_all_v(const Ranks& ranks, const ConstRankParts& in, const RankParts& out) {
  if (ranks.shm == nullptr) return all_to_all_direct(ranks.mesh, in, out);
  shared::all_to_all(*ranks.shm, in, out, Parts::differing);
}

void all_to_all(const Ranks& ranks, const std::byte* in, std::byte* out, std::size_t each) {
  if (ranks.shm == nullptr) return run(all_to_alls, ranks, {each}, in, out, each);
  const Offsets parts(ranks.mesh.size(), each);
  shared::all_to_all(*ranks.shm, {in, parts}, {out, parts}, Parts::equal);
}

void scan(const Ranks& ranks, BytesView in, std::byte* out, const Reducer& reducer, int before) {
  static constexpr Way<Messages, decltype(fold_gathered)> scans[] = {
      {Messages::gathered, fold_gathered},
      {Messages::chain, [](const Ranks& all, BytesView data, std::byte* to, const Reducer& by,
                           int first) { scan_chain(all.mesh, data, to, by, first); }}};
  static_assert(is_whole(scans, Op::scan));
  if (ranks.shm != nullptr || has_large_elements(ranks, reducer)) {
    return fold_gathered(ranks, in, out, reducer, before);
  }
  const Algorithm how = select(ranks, Op::scan, {in.size(), reducer.freedom()});
  way_of(scans, how.as<Messages>())(ranks, in, out, reducer, before);
}

}  // namespace dlaunch::algorithms
