#pragma once

#include "collectives/algorithms/select/parts.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/message/mesh.hpp"

#include <cstddef>
#include <functional>
#include <span>

/// The algorithms over messages; the rules of algorithms.hpp hold for them.
namespace dlaunch::algorithms {

/// After D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization, 1988; rounds
/// in each of which every rank tells those 1 to 7 times 8^k further.
void barrier_dissemination(Mesh& mesh);
/// The same rounds, in which each rank tells all others a piece of data; pieces have one size.
/// `heard` gets the data of each rank.
void tell_by_dissemination(Mesh& mesh, BytesView mine,
                           const std::function<void(int from, BytesView theirs)>& heard);

/// A tree in which a rank has three children for each digit of its place to the base of four.
void broadcast_tree(Mesh& mesh, std::span<std::byte> data, int root);
/// R. van de Geijn: On global combine operations, 1994: parts go down a binomial tree, then round
/// the ring.
void broadcast_scatter(Mesh& mesh, std::span<std::byte> data, int root);

/// Parts travel round the ring, n - 1 steps. Part 0 is that of `first`, and so on.
void all_gather_ring(Mesh& mesh, const RankParts& data, int first = 0);
/// J. Bruck and others: Efficient algorithms for all-to-all communications, 1997: in round k each
/// rank gets from the one 2^k further what that has, up to 2^k parts.
void all_gather_bruck(Mesh& mesh, const RankParts& data);

/// Raw data goes up a binomial tree to `root`, which reduces it into `out`.
void reduce_tree(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer);
/// Every rank sends every owner of a part its data for it; the owner reduces a chunk while the next
/// one arrives.
void reduce_scatter_in_parts(Mesh& mesh, const ConstRankParts& in, std::byte* out,
                             const Reducer& reducer);
/// The same, and the owners send each reduced chunk to all.
void all_reduce_in_parts(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer);
/// Two ranks: each sends the other everything, and both reduce, a chunk while the next one arrives.
void all_reduce_exchange(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer);
/// All raw data goes to all ranks, as in all_gather_bruck, and all reduce.
void all_reduce_bruck(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer);
/// Parts go round the ring, reduced at every rank, and then round once more. For freedom `any`.
void all_reduce_ring(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer);
/// R. Rabenseifner: Optimization of collective reduction operations, 2004: in each of log2 n rounds
/// two ranks halve what they have left to reduce; then the parts come back the same way. For
/// freedom `any`.
void all_reduce_halving(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer);
/// Reduces in parts, which the root collects.
void reduce_in_parts(Mesh& mesh, BytesView in, std::byte* out, int root, const Reducer& reducer);

/// P. Sanders, J. L. Träff: Parallel prefix (scan) algorithms for MPI, 2006, the linear pipeline: a
/// rank reduces its data onto the result of the ranks before it and passes that on, in chunks.
/// `ranks`: how many ranks make up this rank's result. For any freedom but none.
void scan_chain(Mesh& mesh, BytesView in, std::byte* out, const Reducer& reducer, int ranks);

/// A message between the root and each other rank. `all` is used on the root alone.
void gather_direct(Mesh& mesh, BytesView mine, const RankParts& all, int root);
void scatter_direct(Mesh& mesh, const ConstRankParts& all, std::span<std::byte> mine, int root);
/// A binomial tree; equal parts.
void gather_tree(Mesh& mesh, BytesView mine, std::byte* all, int root);
void scatter_tree(Mesh& mesh, const std::byte* all, std::span<std::byte> mine, int root);

/// A message for each pair of ranks, some at a time.
void all_to_all_direct(Mesh& mesh, const ConstRankParts& in, const RankParts& out);
/// Bruck's: in round k each part whose way has the bit k goes 2^k further; equal parts.
void all_to_all_bruck(Mesh& mesh, const std::byte* in, std::byte* out, std::size_t each);

}  // namespace dlaunch::algorithms
