#pragma once

#include "collectives/bench/operations.hpp"

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// Fills the ranks' buffers so that every result is known, and counts wrong elements. Pure: memory
/// in, a number out.
///
/// The i-th element of the part that rank s makes for rank p is a small whole number that depends
/// on s, p and i, so that a part that lies in the wrong place or comes from the wrong rank shows.
/// Reductions of them are exact in every type; a mean alone is compared with a tolerance.
namespace dlaunch::bench {

/// One call as one rank sees it.
struct Case {
  Op op = Op::all_reduce;
  int rank = 0;
  int ranks = 1;
  int root = 0;           ///< Of random_pairs the pairing's number.
  std::size_t count = 0;  ///< Elements of a part.
  DType dtype = DType::f32;
  ReduceOp redop = ReduceOp::sum;
};

/// How many pairings of the ranks there are in which no pair is twice.
int pairings(int ranks);
/// The rank with which this one exchanges in that pairing; nullopt: none is left for it. (The
/// circle method of round-robin tournaments.)
std::optional<int> partner_of(int rank, int ranks, int pairing);

/// Elements that this rank's buffers hold; 0 where the call neither reads nor writes it.
std::size_t in_elements(const Case& call);
std::size_t out_elements(const Case& call);

/// Fills the buffer that this rank gives: `in`, or `out` if there is only one. A buffer that only
/// receives is filled with values that cannot be results.
void fill(const Case& call, std::span<std::byte> in, std::span<std::byte> out);

enum class Depth {
  every_element,
  sample,  ///< The first and the last elements of each part.
};
/// How many of the examined elements of `out` are wrong.
std::uint64_t count_wrong(const Case& call, std::span<const std::byte> out, Depth depth);

}  // namespace dlaunch::bench
