#pragma once

#include "collectives/algorithms/select/layout.hpp"
#include "collectives/reduce/reduce.hpp"
#include "collectives/transport/message/message.hpp"

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Chooses the algorithm of each call. Pure: the answer is the same on all ranks that use one
/// table.
namespace dlaunch::algorithms {

/// The families of algorithms, and those of each.
enum class Family : std::uint8_t { messages, by_node, shared };

/// Algorithms over messages.
enum class Messages : std::uint8_t {
  exchange,       ///< Two ranks send each other all they have.
  bruck,          ///< log2 n rounds; the data passed on doubles in each.
  tree,           ///< Up a tree, or down, or both.
  in_parts,       ///< Each rank sees to a part; all to all, a chunk behind the other.
  scatter,        ///< The root deals out parts, which then travel round a ring.
  ring,           ///< From neighbour to neighbour, n - 1 steps.
  halving,        ///< Pairs at halving distances halve what they have left to reduce.
  dissemination,  ///< Rounds in which all ranks tell ranks at growing distances.
  direct,         ///< Every pair has its own message.
  chain,          ///< Each rank reduces onto the result of the ranks before it.
  kept_part,      ///< All ranks get everything, and each keeps its part.
  gathered,       ///< All ranks get everything, and each reduces the data of earlier ranks.
};
/// For ranks on nodes, within which they share memory.
enum class ByNode : std::uint8_t {
  leaders,  ///< One rank of each node speaks for it.
  slices,   ///< Every rank of a node speaks for its part of the data, which the node reduces first.
  chain,    ///< The same, but each node reduces onto the result of the nodes before it.
};
/// For ranks that share memory.
enum class Shared : std::uint8_t {
  flag_line,  ///< The data lies beside the flag that says it is there.
  one_shot,   ///< Everyone reads what all put into their slots, and reduces all of it.
  two_shot,   ///< Everyone reduces a slice for all, and then takes the others' slices; in chunks.
  slots,      ///< A rank that has something puts it into its slot, where others take it; in chunks.
  in_place,   ///< Straight from the ranks' buffers and into them.
  gathered,   ///< All ranks get everything, and each reduces the data of earlier ranks.
};

template <class One>
inline constexpr Family family_of = Family::messages;
template <>
inline constexpr Family family_of<ByNode> = Family::by_node;
template <>
inline constexpr Family family_of<Shared> = Family::shared;

/// A family, and one of its algorithms.
class Algorithm {
 public:
  constexpr Algorithm(Messages one) noexcept
      : Algorithm(family_of<Messages>, static_cast<std::uint8_t>(one)) {}
  constexpr Algorithm(ByNode one) noexcept
      : Algorithm(family_of<ByNode>, static_cast<std::uint8_t>(one)) {}
  constexpr Algorithm(Shared one) noexcept
      : Algorithm(family_of<Shared>, static_cast<std::uint8_t>(one)) {}

  constexpr Family family() const noexcept { return family_; }
  /// The algorithm as `One`, the enumeration of its family.
  template <class One>
  constexpr One as() const noexcept {
    assert(family_ == family_of<One>);
    return static_cast<One>(number_);
  }
  constexpr std::uint8_t number() const noexcept { return number_; }
  constexpr bool operator==(const Algorithm&) const noexcept = default;

 private:
  constexpr Algorithm(Family family, std::uint8_t number) noexcept
      : family_(family), number_(number) {}

  Family family_;
  std::uint8_t number_;
};
/// "in parts"... A static string; never null.
const char* to_string(Algorithm algorithm) noexcept;

/// The ranks of a communicator, as far as they matter to a choice.
struct Topology {
  int ranks = 1;
  bool shared = false;      ///< They share memory.
  bool registered = false;  ///< The buffers of all of them lie in it, too.
  // For ranks that do not all share memory:
  int nodes = 0;  ///< The number of nodes, if all ranks know it and some share memory; else 0.
  bool in_order = false;            ///< The ranks of each node are a run.
  bool is_even = false;             ///< Nodes have equally many ranks, and ranks give equally much.
  Freedom freedom = Freedom::none;  ///< The freedom of the call's reduction.
};
Topology topology_of(const Layout& layout, Freedom freedom = Freedom::none);

struct Choice {
  Algorithm algorithm = Messages::direct;
  std::string_view why;

  bool operator==(const Choice&) const = default;
};

constexpr std::size_t unlimited = ~std::size_t{0};
constexpr int any_number = 0x7fffffff;

/// The quantity that a line limits.
enum class Measure : std::uint8_t {
  bytes,  ///< As select() takes them.
  all,    ///< bytes * ranks
  each,   ///< bytes / ranks
  node,   ///< bytes * (ranks / nodes)
};
/// "bytes x ranks"...
const char* to_string(Measure measure) noexcept;

/// A line of the table; the first that holds counts. It is for the ranks that its algorithm's
/// family serves.
struct Row {
  transport::Op op{};
  bool registered = false;  ///< Only if the buffers are registered.
  bool in_order = false;    ///< Only if each node's ranks are consecutive.
  bool even = false;        ///< See Topology.
  int ranks_min = 1, ranks_max = any_number;
  int nodes_max = any_number;
  Measure measure = Measure::bytes;
  std::size_t most = unlimited;     ///< The limit, in `measure`.
  std::size_t ceiling = unlimited;  ///< Bytes that the algorithm can take, whatever `most` says.
  Freedom freedom = Freedom::none;  ///< The call must allow at least this.
  /// The name by which a table may change the limit; empty: it is fixed. Whatever the limit, calls
  /// that do not allow any order give the same bits.
  std::string_view name = {};
  Choice choice;

  /// The most bytes for which it holds with so many ranks; nullopt if it holds for none.
  std::size_t limit(int ranks, int nodes = 0) const;
  /// The value of its measure for so many bytes, large enough for limit() to let them pass.
  std::size_t measured(std::size_t bytes, int ranks, int nodes = 0) const;
  /// Whether it may hold for such ranks; for some size.
  bool fits(const Topology& topology) const;
  bool holds(std::size_t bytes, const Topology& topology) const;
};

/// The table of algorithms. A value: the built-in lines, with limits that were measured here or
/// elsewhere. Ranks that talk to each other use equal tables.
class Table {
 public:
  /// The built-in table.
  Table();

  const std::vector<Row>& rows() const { return rows_; }
  /// Null: no line has that name.
  const Row* find(std::string_view name) const;
  /// `name` is that of a line.
  void set_limit(std::string_view name, std::size_t most);

  /// `bytes` is the buffer's size for broadcast, reduce, all_reduce and scans; for other operations
  /// it is the data that one rank gives another, or all. An exscan is chosen like a scan.
  Choice select(transport::Op op, std::size_t bytes, const Topology& topology) const;
  /// The choices for these ranks, a line for each range of sizes.
  std::string explain(const Topology& topology) const;
  /// A digest that is equal for tables that choose alike. It covers all lines, so that builds whose
  /// tables differ also differ here.
  std::uint64_t digest() const { return digest_; }

  /// Its source: "built in", a file. Not part of its value.
  const std::string& origin() const { return origin_; }
  void set_origin(std::string origin) { origin_ = std::move(origin); }
  /// "'FILE' (1f3a...)", by which people tell tables apart.
  std::string title() const;

 private:
  void sum_up();

  std::vector<Row> rows_;
  /// The first line of each operation, since a search for it would take too long for a small call.
  std::array<std::uint8_t, 256> first_{};
  std::uint64_t digest_ = 0;
  std::string origin_ = "built in";
};
/// The built-in table.
const Table& built_in_table();

}  // namespace dlaunch::algorithms
