#pragma once

#include "collectives/algorithms/select/parts.hpp"
#include "collectives/algorithms/shared/shared.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/message/mesh.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

/// The collectives in bytes, each by the algorithm that the table in select/ has for its size and
/// its ranks. Plain blocking functions; every rank calls the same one with the same sizes. Parts
/// are in rank order, except where elements are reduced. All work for any number of ranks from 1
/// and for empty data. For each element at least one rank reduces all ranks' own data, so that the
/// bits are the same whichever algorithm runs. A call may run several of these functions, one after
/// the other, if all ranks do.
namespace dlaunch::algorithms {

namespace by_node {
class Nodes;
}

/// The ranks of a call, and the ways in which they reach each other. Borrows.
struct Ranks {
  Ranks(Mesh& all, transport::ShmGroup* all_share = nullptr, const by_node::Nodes* some = nullptr)
      : mesh(all), shm(all_share), nodes(some) {}

  Mesh& mesh;                   ///< Messages, which all can send.
  transport::ShmGroup* shm;     ///< The memory that all of them share; or null.
  const by_node::Nodes* nodes;  ///< Their nodes, if some of them share memory; or null.
};

/// The largest element that every algorithm takes, since a chunk of any holds at least one. Ranks
/// in one segment share its slots. Larger elements have an algorithm of their own.
constexpr std::size_t element_bytes_max(std::size_t ranks) {
  constexpr std::size_t chunk_bytes_min = 128u << 10;
  const std::size_t sharers = std::min(ranks, segment_ranks_max);
  return std::min(chunk_bytes_min, transport::ShmGroup::slot_bytes / sharers) / 64 * 64;
}
/// The elements that are never larger, whatever the number of ranks.
constexpr std::size_t small_element_bytes_max = element_bytes_max(segment_ranks_max);
static_assert(small_element_bytes_max >= 64);

/// The algorithms for ranks that do not all share memory, and for large elements. They are chosen
/// out of line, since programs wait most for small calls between ranks that do share memory.
namespace apart {
void barrier(const Ranks& ranks);
void broadcast(const Ranks& ranks, std::span<std::byte> data, int root);
void all_reduce(const Ranks& ranks, std::span<std::byte> data, const Reducer& reducer);
void all_gather(const Ranks& ranks, const RankParts& data);
}  // namespace apart

inline void barrier(const Ranks& ranks) {
  ranks.shm != nullptr ? shared::barrier(*ranks.shm) : apart::barrier(ranks);
}
inline void broadcast(const Ranks& ranks, std::span<std::byte> data, int root) {
  if (ranks.shm != nullptr) return shared::broadcast(*ranks.shm, data, root);
  apart::broadcast(ranks, data, root);
}
/// The others' `out` is not used. `out` may be `in`.
void reduce(const Ranks& ranks, BytesView in, std::byte* out, int root, const Reducer& reducer);
inline void all_reduce(const Ranks& ranks, std::span<std::byte> data, const Reducer& reducer) {
  if (ranks.shm != nullptr && reducer.element_bytes() <= small_element_bytes_max) {
    return shared::all_reduce(*ranks.shm, data, reducer);
  }
  apart::all_reduce(ranks, data, reducer);
}
/// `out` may be `in`.
void all_reduce(const Ranks& ranks, BytesView in, std::byte* out, const Reducer& reducer);
/// This rank's own part is already in its place. All ranks know all parts.
inline void all_gather(const Ranks& ranks, const RankParts& data) {
  if (ranks.shm != nullptr) return shared::all_gather(*ranks.shm, data);
  apart::all_gather(ranks, data);
}
/// `out` may be this rank's part of `in`. All ranks know all parts.
void reduce_scatter(const Ranks& ranks, const ConstRankParts& in, std::byte* out,
                    const Reducer& reducer);
/// Equal parts. `all` is used on the root alone.
void gather(const Ranks& ranks, BytesView mine, std::byte* all, int root);
void scatter(const Ranks& ranks, const std::byte* all, std::span<std::byte> mine, int root);
/// Parts that the root alone knows.
void gather_v(const Ranks& ranks, BytesView mine, const RankParts& all, int root);
void scatter_v(const Ranks& ranks, const ConstRankParts& all, std::span<std::byte> mine, int root);
/// `each` bytes from every rank to every rank.
void all_to_all(const Ranks& ranks, const std::byte* in, std::byte* out, std::size_t each);
/// Parts of which a rank knows its own.
void all_to_all_v(const Ranks& ranks, const ConstRankParts& in, const RankParts& out);
/// `out` becomes the reduction of the `in` of the first `before` ranks: this rank's number of them
/// without its own, one more with it. `out` may be `in`; with 0 ranks it is not written.
void scan(const Ranks& ranks, BytesView in, std::byte* out, const Reducer& reducer, int before);

}  // namespace dlaunch::algorithms
