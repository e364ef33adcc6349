#pragma once

#include "collectives/reduce.hpp"
#include "collectives/transport/mesh.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

/// Plain blocking functions over a Mesh; every rank calls the same one with the same sizes. Sizes
/// are in bytes and parts are packed in rank order, except where elements are folded. All work for
/// any number of ranks from 1 and for empty data.
namespace dlaunch::algorithms {

/// Where each rank's part begins and ends: n + 1 offsets.
using Offsets = std::vector<std::size_t>;
Offsets equal_parts(int ranks, std::size_t each);
Offsets parts_of(std::span<const std::size_t> counts, std::size_t element_bytes);

/// D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization, 1988: log2 n
/// rounds, in each of which every rank tells the one 2^k further.
void barrier_dissemination(Mesh& mesh);

/// A binomial tree: log2 n rounds; every rank receives once.
void broadcast_binomial(Mesh& mesh, std::span<std::byte> data, int root);

/// Parts travel round the ring, n - 1 steps; this rank's own part is in its place already.
void all_gather_ring(Mesh& mesh, std::byte* data, const Offsets& parts);

/// Raw contributions go up a binomial tree to `root`, which folds them in rank order into `out`;
/// for small data. The others' `out` is not used.
void reduce_tree(Mesh& mesh, BytesView in, std::byte* out, int root, const Folder& fold);

/// Each pair of ranks exchanges parts; the owner of a part folds it in rank order, a piece at a
/// time. `out` may be this rank's part of `in`.
void reduce_scatter_pairwise(Mesh& mesh, BytesView in, std::byte* out, const Offsets& parts,
                             const Folder& fold);

/// Small: reduce_tree, then broadcast. Large: reduce_scatter_pairwise, then all_gather_ring. The
/// fold is in rank order either way, so both give the same bits.
void all_reduce(Mesh& mesh, std::span<std::byte> data, const Folder& fold);
/// Small: reduce_tree. Large: reduce_scatter_pairwise, then the root collects.
void reduce(Mesh& mesh, BytesView in, std::byte* out, int root, const Folder& fold);

/// The root receives from, or sends to, each in turn. `all` is used on the root alone.
void gather_linear(Mesh& mesh, BytesView mine, std::byte* all, const Offsets& parts, int root);
void scatter_linear(Mesh& mesh, const std::byte* all, std::span<std::byte> mine,
                    const Offsets& parts, int root);

/// n - 1 exchanges; in the k-th every rank sends to the one k further.
void all_to_all_pairwise(Mesh& mesh, const std::byte* in, const Offsets& in_parts, std::byte* out,
                         const Offsets& out_parts);

/// Whether data of this size is reduced in parts; the same answer on all ranks. Pure.
bool reduces_in_parts(std::size_t bytes, int ranks);

}  // namespace dlaunch::algorithms
