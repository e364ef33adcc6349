#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/by_node.hpp"
#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/select/select.hpp"

#include <cstring>
#include <numeric>

/// Each call by the algorithm that select() names; a name the table does not have for a call cannot
/// come.
namespace dlaunch::algorithms {
namespace {

using transport::Op;

Algorithm algorithm_of(Op op, std::size_t bytes, const Mesh& mesh,
                       Freedom freedom = Freedom::none) {
  return mesh.table().select(op, bytes, {.ranks = mesh.size(), .freedom = freedom}).algorithm;
}

/// Every rank a node of its own, so that a chain goes from rank to rank.
by_node::Nodes each_alone(const Mesh& mesh) {
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(mesh.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return by_node::Nodes(Layout(numbers), mesh.rank(), nullptr);
}

/// Everything to everyone, and this rank's part of it to `out`.
void keep_part(Mesh& mesh, BytesView in, std::byte* out, const Offsets& parts,
               const Reducer& reducer) {
  const auto all = mesh.buffer_pool().take(in.size());
  if (!in.empty()) std::memcpy(all.get(), in.data(), in.size());
  all_reduce(mesh, {all.get(), in.size()}, reducer);
  const std::size_t bytes = size_of_part(parts, mesh.rank());
  if (bytes > 0) std::memcpy(out, all.get() + parts[static_cast<std::size_t>(mesh.rank())], bytes);
}

}  // namespace

void barrier(Mesh& mesh) { barrier_dissemination(mesh); }

void broadcast(Mesh& mesh, std::span<std::byte> data, int root) {
  if (algorithm_of(Op::broadcast, data.size(), mesh) == Algorithm::scatter) {
    return broadcast_scatter(mesh, data, root);
  }
  broadcast_tree(mesh, data, root);
}

void reduce(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  const Algorithm how = algorithm_of(Op::reduce, in.size(), mesh, reducer.freedom());
  if (how == Algorithm::tree) return reduce_tree(mesh, in, out, root, reducer);
  if (how == Algorithm::chain) {
    return by_node::reduce_in_chain(mesh, each_alone(mesh), in, out, root, reducer);
  }
  reduce_in_parts(mesh, in, out, root, reducer);
}

void all_reduce(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer) {
  if (mesh.size() == 1) return all_reduce_in_parts(mesh, data, reducer);
  switch (algorithm_of(Op::all_reduce, data.size(), mesh, reducer.freedom())) {
    case Algorithm::exchange:
      return all_reduce_exchange(mesh, data, reducer);
    case Algorithm::bruck:
      return all_reduce_bruck(mesh, data, reducer);
    case Algorithm::tree:
      reduce_tree(mesh, data, data.data(), 0, reducer);
      return broadcast_tree(mesh, data, 0);
    case Algorithm::halving:
      return all_reduce_halving(mesh, data, reducer);
    case Algorithm::ring:
      return all_reduce_ring(mesh, data, reducer);
    case Algorithm::chain:
      return by_node::all_reduce_in_chain(mesh, each_alone(mesh), data, reducer);
    case Algorithm::in_parts:
    case Algorithm::scatter:
    case Algorithm::dissemination:
    case Algorithm::direct:
    case Algorithm::flag_line:
    case Algorithm::one_shot:
    case Algorithm::two_shot:
    case Algorithm::slots:
    case Algorithm::in_place:
    case Algorithm::leaders:
    case Algorithm::slices:
    case Algorithm::kept_part:
    case Algorithm::gathered:
      return all_reduce_in_parts(mesh, data, reducer);
  }
}

void all_gather(Mesh& mesh, std::byte* data, const Offsets& parts) {
  // All ranks know all parts: what is chosen for their mean is the same on all.
  const std::size_t mean = parts.back() / static_cast<std::size_t>(mesh.size());
  if (algorithm_of(Op::all_gather, mean, mesh) == Algorithm::bruck) {
    return all_gather_bruck(mesh, data, parts);
  }
  all_gather_ring(mesh, data, parts);
}

void reduce_scatter(Mesh& mesh, BytesView in, std::byte* out, const Offsets& parts,
                    const Reducer& reducer) {
  const std::size_t mean = parts.back() / static_cast<std::size_t>(mesh.size());
  if (algorithm_of(Op::reduce_scatter, mean, mesh, reducer.freedom()) == Algorithm::kept_part) {
    return keep_part(mesh, in, out, parts, reducer);
  }
  reduce_scatter_in_parts(mesh, in, out, parts, reducer);
}

void gather(Mesh& mesh, BytesView mine, std::byte* all, int root) {
  if (algorithm_of(Op::gather, mine.size(), mesh) == Algorithm::tree) {
    return gather_tree(mesh, mine, all, root);
  }
  gather_direct(mesh, mine, all, Offsets(mesh.size(), mine.size()), root);
}

void scatter(Mesh& mesh, const std::byte* all, std::span<std::byte> mine, int root) {
  if (algorithm_of(Op::scatter, mine.size(), mesh) == Algorithm::tree) {
    return scatter_tree(mesh, all, mine, root);
  }
  scatter_direct(mesh, all, mine, Offsets(mesh.size(), mine.size()), root);
}

void all_to_all(Mesh& mesh, const std::byte* in, std::byte* out, std::size_t each) {
  if (algorithm_of(Op::all_to_all, each, mesh) == Algorithm::bruck) {
    return all_to_all_bruck(mesh, in, out, each);
  }
  const Offsets parts(mesh.size(), each);
  all_to_all_direct(mesh, in, parts, out, parts);
}

}  // namespace dlaunch::algorithms
