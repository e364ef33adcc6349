#pragma once

#include "collectives/algorithms/select/parts.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <cstddef>
#include <optional>
#include <span>

/// The collectives of ranks that share memory, each by the algorithm that the table has for its
/// size. Every member calls the same one with the same sizes;
/// the meaning is that of the functions of the same name over a Mesh. Reductions are in the
/// members' order, so that all get the same bits, which are those of the algorithms over a Mesh.
///
/// Bytes move through the members' slots, in chunks; a chunk costs one synchronisation.
namespace dlaunch::algorithms::shared {

using transport::ShmGroup;

/// If a call's parts differ in size, the ranks first agree on how long the longest is.
enum class Parts { equal, differing };

void barrier(ShmGroup& shm);
void broadcast(ShmGroup& shm, std::span<std::byte> data, int root);
/// `out` is written at the root alone.
void reduce(ShmGroup& shm, BytesView in, std::byte* out, int root, const Reducer& reducer);
void all_reduce(ShmGroup& shm, std::span<std::byte> data, const Reducer& reducer);
/// `out` may be `in`.
void all_reduce(ShmGroup& shm, BytesView in, std::byte* out, const Reducer& reducer);
/// This rank's own part is in its place already.
void all_gather(ShmGroup& shm, const RankParts& data);
/// `out` may be this rank's part of `in`.
void reduce_scatter(ShmGroup& shm, const ConstRankParts& in, std::byte* out,
                    const Reducer& reducer);
/// `all` is used at the root alone.
void gather(ShmGroup& shm, BytesView mine, const RankParts& all, int root, Parts how);
void scatter(ShmGroup& shm, const ConstRankParts& all, std::span<std::byte> mine, int root,
             Parts how);
void all_to_all(ShmGroup& shm, const ConstRankParts& in, const RankParts& out, Parts how);

/// A step in which every member tells every other how many bytes it will give it. `gives` and
/// `takes` have an entry for each member; a takes[m] of nullopt is not compared. Returns the
/// largest amount. If two members disagree, it throws through the shm group's WaitPolicy.
std::size_t agree_on_longest(ShmGroup& shm, std::span<const std::size_t> gives,
                             std::span<const std::optional<std::size_t>> takes);

}  // namespace dlaunch::algorithms::shared
