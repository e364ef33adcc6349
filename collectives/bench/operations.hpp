#pragma once

#include "collectives/transport/message/message.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// The operations that `dlaunch bench` can measure. Pure.
namespace dlaunch::bench {

enum class Op : std::uint8_t {
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
  scan,
  exscan,
  ping_pong,
  bidirectional,
  window,
  halo,
  random_pairs,
  fan_in,
};

/// Messages that `window` has under way at a time.
constexpr int window_messages = 64;

/// The contents of a buffer.
enum class Extent : std::uint8_t {
  none,
  one_part,
  part_for_each,
  two_parts,  ///< One each for, or from, the left and the right neighbour.
};
/// The buffer that a root alone uses.
enum class Alone : std::uint8_t { none, in, out };
/// The ranks between which messages go.
enum class Partners : std::uint8_t {
  none,        ///< A collective.
  first_two,   ///< The others wait.
  neighbours,  ///< In a ring.
  random,      ///< Pairs that change from call to call; of an odd number one rank is left out.
  root,        ///< All others send to it.
};
/// The ranks whose data a result is reduced from.
enum class Reduced : std::uint8_t { none, all, up_to_own, before_own };

/// The description of an operation. A new one is a row, in the order of Op, and a case of
/// Calls::call.
struct Operation {
  Op op{};
  std::string_view name;  ///< As --ops takes it, and as the table shows it.
  std::optional<transport::Op> calls = std::nullopt;  ///< The collective; nullopt: messages.
  Extent in = Extent::none, out = Extent::none;
  Alone alone = Alone::none;
  Reduced reduced = Reduced::none;
  /// How many times the links of n ranks carry (n - 1) / n of the size, as nccl-tests count; 0: the
  /// whole size once.
  int crossings = 0;
  bool on_device = true;  ///< NCCL has it.
  /// The number of messages that a call moves one after the other; the table has the time of one.
  int messages = 1;
  Partners partners = Partners::none;

  constexpr bool sized() const { return out != Extent::none; }
  constexpr bool reduces() const { return reduced != Reduced::none; }
  constexpr bool rooted() const {
    return partners == Partners::root || (calls && transport::is_rooted(*calls));
  }
  /// The number of parts, to which the size refers as a whole, as in nccl-tests.
  constexpr std::size_t parts(int ranks) const {
    if (in == Extent::two_parts) return 2;
    const bool each = in == Extent::part_for_each || out == Extent::part_for_each;
    return each ? static_cast<std::size_t>(ranks) : 1;
  }
  /// Messages between the ranks of a ring.
  constexpr bool ring() const { return partners == Partners::neighbours; }
  /// One rank alone has nobody to send to.
  constexpr bool needs_another() const { return partners != Partners::none && !ring(); }
  /// Between ranks 0 and 1; the others wait.
  constexpr bool pair() const { return partners == Partners::first_two; }
  /// Whether it works on `out` alone.
  constexpr bool one_buffer() const { return sized() && in == Extent::none; }
};

/// All, in the order in which they are measured.
std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);
const Operation& operation(Op op);
/// The first operation that measures such calls; null: there is none.
const Operation* find_measuring(transport::Op calls);

/// Bus bandwidth for an algorithm bandwidth of 1, as nccl-tests define it: the load of the links,
/// which can be compared with their speed for any number of ranks.
double bus_factor(const Operation& operation, int ranks);

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
