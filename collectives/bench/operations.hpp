#pragma once

#include <cstddef>
#include <span>
#include <string_view>

/// What `dlaunch bench` can measure. Pure.
namespace dlaunch::bench {

enum class Op {
  barrier,
  barrier_ordered,
  broadcast,
  reduce,
  all_reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  ping_pong,
  bidirectional,
};

struct Operation {
  Op op;
  std::string_view name;  ///< As --ops takes it, and as the table shows it.
  bool sized;             ///< Moves data; barriers do not.
  bool reduces;           ///< Takes a reduction.
  bool rooted;            ///< Takes a root.
  bool in_parts;          ///< The size is that of all ranks' parts together, as in nccl-tests.
  bool pair;              ///< Between ranks 0 and 1; the others wait.
};

/// All, in the order in which they are measured.
std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);
const Operation& operation(Op op);

/// Bus bandwidth for an algorithm bandwidth of 1, as nccl-tests define it: what the links carry,
/// so that it can be compared with them whatever the number of ranks.
double bus_factor(Op op, int ranks);

/// How much one call moves: the bytes asked, rounded down to whole elements and equal parts, at
/// least one element in each.
struct Amount {
  std::size_t count = 0;  ///< Elements of one rank's part; of the whole where there are no parts.
  std::size_t bytes = 0;  ///< All parts together.

  bool operator==(const Amount&) const = default;
};
Amount amount_for(const Operation& operation, std::size_t bytes_asked, std::size_t element_bytes,
                  int ranks);

}  // namespace dlaunch::bench
