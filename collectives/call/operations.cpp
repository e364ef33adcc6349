#include "collectives/call/operations.hpp"

#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/select/select.hpp"
#include "collectives/algorithms/shared/shared.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dlaunch::operations {

namespace by_node = algorithms::by_node;
namespace shared = algorithms::shared;
using algorithms::Algorithm;
using shared::Parts;
using transport::Op;

namespace {

/// In memory that ranks share, so many bytes of all of them are gathered at a time.
constexpr std::size_t scan_chunk_max = 1u << 20;

/// How the ranks go about it by their nodes; nothing of that: as if each had one of its own.
Algorithm by_nodes(const Call& call, Op op, std::size_t bytes, Freedom freedom = Freedom::none) {
  if (call.nodes() == nullptr) return Algorithm::direct;
  const auto topology = algorithms::topology_of(call.nodes()->layout(), freedom);
  return call.table().select(op, bytes, topology).algorithm;
}

}  // namespace

void barrier(Call& call) {
  if (auto* shm = call.shm()) return shared::barrier(*shm);
  if (by_nodes(call, Op::barrier, 0) == Algorithm::leaders) {
    return by_node::barrier(call, *call.nodes());
  }
  algorithms::barrier(call);
}

void broadcast(Call& call, std::span<std::byte> data, int root) {
  if (auto* shm = call.shm()) return shared::broadcast(*shm, data, root);
  if (by_nodes(call, Op::broadcast, data.size()) == Algorithm::leaders) {
    return by_node::broadcast(call, *call.nodes(), data, root);
  }
  algorithms::broadcast(call, data, root);
}

void reduce(Call& call, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  if (auto* shm = call.shm()) return shared::reduce(*shm, in, out, root, reducer);
  const Algorithm how = by_nodes(call, Op::reduce, in.size(), reducer.freedom());
  if (how == Algorithm::leaders) {
    return by_node::reduce_by_leaders(call, *call.nodes(), in, out, root, reducer);
  }
  if (how == Algorithm::slices) {
    return by_node::reduce_in_slices(call, *call.nodes(), in, out, root, reducer);
  }
  if (how == Algorithm::chain) {
    return by_node::reduce_in_chain(call, *call.nodes(), in, out, root, reducer);
  }
  algorithms::reduce(call, in, out, root, reducer);
}

void all_reduce(Call& call, std::span<std::byte> data, const Reducer& reducer) {
  if (auto* shm = call.shm()) return shared::all_reduce(*shm, data, reducer);
  const Algorithm how = by_nodes(call, Op::all_reduce, data.size(), reducer.freedom());
  if (how == Algorithm::leaders) {
    return by_node::all_reduce_by_leaders(call, *call.nodes(), data, reducer);
  }
  if (how == Algorithm::slices) {
    return by_node::all_reduce_in_slices(call, *call.nodes(), data, reducer);
  }
  if (how == Algorithm::chain) {
    return by_node::all_reduce_in_chain(call, *call.nodes(), data, reducer);
  }
  algorithms::all_reduce(call, data, reducer);
}

void all_gather(Call& call, std::byte* data, std::size_t each) {
  if (auto* shm = call.shm()) return shared::all_gather(*shm, data, Offsets(call.size(), each));
  const Algorithm how = by_nodes(call, Op::all_gather, each);
  if (how == Algorithm::slices) {
    return by_node::all_gather_in_slices(call, *call.nodes(), data, each);
  }
  all_gather_v(call, data, Offsets(call.size(), each));
}

void all_gather_v(Call& call, std::byte* data, const Offsets& parts) {
  if (auto* shm = call.shm()) return shared::all_gather(*shm, data, parts);
  const std::size_t mean = parts.back() / static_cast<std::size_t>(call.size());
  if (by_nodes(call, Op::all_gather, mean) == Algorithm::leaders) {
    return by_node::all_gather_by_leaders(call, *call.nodes(), data, parts);
  }
  algorithms::all_gather(call, data, parts);
}

void reduce_scatter(Call& call, BytesView in, std::byte* out, std::size_t each,
                    const Reducer& reducer) {
  if (by_nodes(call, Op::reduce_scatter, each, reducer.freedom()) == Algorithm::chain) {
    return by_node::reduce_scatter_in_chain(call, *call.nodes(), in, out, each, reducer);
  }
  reduce_scatter_v(call, in, out, Offsets(call.size(), each), reducer);
}

void reduce_scatter_v(Call& call, BytesView in, std::byte* out, const Offsets& parts,
                      const Reducer& reducer) {
  if (auto* shm = call.shm()) return shared::reduce_scatter(*shm, in, out, parts, reducer);
  algorithms::reduce_scatter(call, in, out, parts, reducer);
}

void all_to_all(Call& call, const std::byte* in, std::byte* out, std::size_t each) {
  if (auto* shm = call.shm()) {
    const Offsets parts(call.size(), each);
    return shared::all_to_all(*shm, in, parts, out, parts, Parts::equal);
  }
  algorithms::all_to_all(call, in, out, each);
}

void all_to_all_v(Call& call, const std::byte* in, const Offsets& in_parts, std::byte* out,
                  const Offsets& out_parts) {
  if (auto* shm = call.shm()) {
    return shared::all_to_all(*shm, in, in_parts, out, out_parts, Parts::differing);
  }
  algorithms::all_to_all_direct(call, in, in_parts, out, out_parts);
}

void scan(Call& call, BytesView in, std::byte* out, const Reducer& reducer, int ranks) {
  const algorithms::Topology here{
      .ranks = call.size(), .shared = call.shm() != nullptr, .freedom = reducer.freedom()};
  if (call.table().select(Op::scan, in.size(), here).algorithm == Algorithm::chain) {
    return algorithms::scan_chain(call, in, out, reducer, ranks);
  }
  const auto n = static_cast<std::size_t>(call.size());
  // Every rank has all ranks' data, a chunk at a time, and reduces what is before it.
  const std::size_t element = reducer.element_bytes();
  const std::size_t chunk_max = std::max<std::size_t>(scan_chunk_max / n / element, 1) * element;
  const auto all = call.buffer_pool().take(std::min(chunk_max, in.size()) * n);
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(ranks));
  std::size_t begin = 0;
  do {
    const auto chunk = in.subspan(begin, std::min(chunk_max, in.size() - begin));
    const std::size_t own = static_cast<std::size_t>(call.rank()) * chunk.size();
    if (!chunk.empty()) std::memcpy(all.get() + own, chunk.data(), chunk.size());
    all_gather(call, all.get(), chunk.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = all.get() + i * chunk.size();
    if (ranks > 0) reducer(inputs, out + begin, chunk.size() / element);
    begin += chunk.size();
  } while (begin < in.size());
}

void gather(Call& call, BytesView mine, std::byte* all, int root) {
  if (auto* shm = call.shm()) {
    return shared::gather(*shm, mine, all, Offsets(call.size(), mine.size()), root, Parts::equal);
  }
  if (by_nodes(call, Op::gather, mine.size()) == Algorithm::leaders) {
    return by_node::gather_by_leaders(call, *call.nodes(), mine, all, root);
  }
  algorithms::gather(call, mine, all, root);
}

void gather_v(Call& call, BytesView mine, std::byte* all, const Offsets& parts, int root) {
  if (auto* shm = call.shm()) {
    return shared::gather(*shm, mine, all, parts, root, Parts::differing);
  }
  algorithms::gather_direct(call, mine, all, parts, root);
}

void scatter(Call& call, const std::byte* all, std::span<std::byte> mine, int root) {
  if (auto* shm = call.shm()) {
    return shared::scatter(*shm, all, mine, Offsets(call.size(), mine.size()), root, Parts::equal);
  }
  if (by_nodes(call, Op::scatter, mine.size()) == Algorithm::leaders) {
    return by_node::scatter_by_leaders(call, *call.nodes(), all, mine, root);
  }
  algorithms::scatter(call, all, mine, root);
}

void scatter_v(Call& call, const std::byte* all, std::span<std::byte> mine, const Offsets& parts,
               int root) {
  if (auto* shm = call.shm()) {
    return shared::scatter(*shm, all, mine, parts, root, Parts::differing);
  }
  algorithms::scatter_direct(call, all, mine, parts, root);
}

}  // namespace dlaunch::operations
