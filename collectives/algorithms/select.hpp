#pragma once

#include "collectives/transport/message.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// Which algorithm serves which call. Pure: the same answer on all ranks.
namespace dlaunch::algorithms {

enum class Algorithm : std::uint8_t {
  exchange,       ///< Two ranks send each other all they have.
  bruck,          ///< log2 n rounds, in which what is passed on doubles.
  tree,           ///< Up a tree, or down, or both.
  in_parts,       ///< Each rank sees to a part; all to all, a chunk behind the other.
  scatter,        ///< The root deals out parts, which then travel round a ring.
  ring,           ///< From neighbour to neighbour, n - 1 steps.
  dissemination,  ///< Rounds in which all tell those at growing distances.
  direct,         ///< Every pair has its own message.
};
/// "in parts"... A static string; never null.
const char* to_string(Algorithm algorithm) noexcept;

/// The ranks of a communicator, as far as they matter to a choice.
struct Topology {
  int ranks = 1;
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  const char* why = "";
};

/// A line of the table; the first that holds counts. A limit that is not given is unlimited.
struct Row {
  transport::Op op{};
  int ranks_min = 1, ranks_max = 0x7fffffff;
  std::size_t bytes_max = ~std::size_t{0};
  std::size_t all_bytes_max = ~std::size_t{0};   ///< bytes * ranks
  std::size_t each_bytes_max = ~std::size_t{0};  ///< bytes / ranks
  Choice choice;

  /// The most bytes for which it holds with so many ranks; nothing if it does for none.
  std::size_t limit(int ranks) const;
  bool holds(std::size_t bytes, int ranks) const;
};
std::span<const Row> table();

/// `bytes` are those of the buffer for broadcast, reduce and all_reduce, and what one rank gives
/// one other, or all, for the others.
Choice select(transport::Op op, std::size_t bytes, const Topology& topology);
/// The table as it is for these ranks, a line for each range of sizes.
std::string explain(const Topology& topology);

}  // namespace dlaunch::algorithms
