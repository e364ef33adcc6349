#pragma once

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/call/call.hpp"
#include "collectives/reduce/reduce.hpp"

#include <cstddef>
#include <span>

/// The collectives in bytes, by whatever way the call's ranks have to each other: the memory they
/// share, else messages. Sizes, order and bits as in algorithms.hpp. A call may do several of them,
/// one after the other, if all ranks do.
namespace dlaunch::operations {

using algorithms::Offsets;

void barrier(Call& call);
void broadcast(Call& call, std::span<std::byte> data, int root);
void reduce(Call& call, BytesView in, std::byte* out, int root, const Reducer& reducer);
void all_reduce(Call& call, std::span<std::byte> data, const Reducer& reducer);
/// `data` has a part of `each` bytes for every rank.
void all_gather(Call& call, std::byte* data, std::size_t each);
void all_gather_v(Call& call, std::byte* data, const Offsets& parts);
void reduce_scatter(Call& call, BytesView in, std::byte* out, std::size_t each,
                    const Reducer& reducer);
void reduce_scatter_v(Call& call, BytesView in, std::byte* out, const Offsets& parts,
                      const Reducer& reducer);
void all_to_all(Call& call, const std::byte* in, std::byte* out, std::size_t each);
void all_to_all_v(Call& call, const std::byte* in, const Offsets& in_parts, std::byte* out,
                  const Offsets& out_parts);
/// `out` becomes the reduction of the `in` of the first `ranks` ranks: this one's number of them
/// for the ranks before it, and one more with its own. `out` may be `in`, and is not written for
/// none.
void scan(Call& call, BytesView in, std::byte* out, const Reducer& reducer, int ranks);
void gather(Call& call, BytesView mine, std::byte* all, int root);
/// `parts` is used at the root alone, as is `all`.
void gather_v(Call& call, BytesView mine, std::byte* all, const Offsets& parts, int root);
void scatter(Call& call, const std::byte* all, std::span<std::byte> mine, int root);
void scatter_v(Call& call, const std::byte* all, std::span<std::byte> mine, const Offsets& parts,
               int root);

}  // namespace dlaunch::operations
