#pragma once

#include "collectives/algorithms/select/parts.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/message/mesh.hpp"

#include <cstddef>
#include <span>

/// The calls, each by the algorithm that the table in select/ has for its size.
/// Plain blocking functions over a Mesh; every rank calls the same one with the same sizes. Sizes
/// are in bytes and parts are packed in rank order, except where elements are reduced. All work for
/// any number of ranks from 1 and for empty data. Reductions are of all ranks' own data, by one
/// rank at least for each element, so that whichever algorithm runs, the bits are the same.
namespace dlaunch::algorithms {

void barrier(Mesh& mesh);
void broadcast(Mesh& mesh, std::span<std::byte> data, int root);
/// The others' `out` is not used. `out` may be `in`.
void reduce(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer);
void all_reduce(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer);
/// This rank's own part is in its place already.
void all_gather(Mesh& mesh, std::byte* data, const Offsets& parts);
/// `out` may be this rank's part of `in`.
void reduce_scatter(Mesh& mesh, BytesView in, std::byte* out, const Offsets& parts,
                    const Reducer& reducer);
/// Equal parts. `all` is used on the root alone.
void gather(Mesh& mesh, BytesView mine, std::byte* all, int root);
void scatter(Mesh& mesh, const std::byte* all, std::span<std::byte> mine, int root);
/// `each` bytes from every rank to every rank.
void all_to_all(Mesh& mesh, const std::byte* in, std::byte* out, std::size_t each);

}  // namespace dlaunch::algorithms
