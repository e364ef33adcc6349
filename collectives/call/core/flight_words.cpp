#include "collectives/call/core/flight_words.hpp"

#include "collectives/call/core/traffic.hpp"
#include "collectives/reduce/reduce_ops.hpp"
#include "collectives/transport/message/message.hpp"

#include <array>

namespace dlaunch {
namespace {

/// The names of the numbers 1 to `Last`; nothing has the number 0.
template <auto Last>
auto names() {
  using Enum = decltype(Last);
  std::array<const char*, static_cast<std::size_t>(Last) + 1> names{};
  for (std::size_t i = 1; i < names.size(); ++i) names[i] = to_string(static_cast<Enum>(i));
  return names;
}

/// The words of each purpose, by its number in a call's traffic; behind all of them those of its
/// shadow.
struct PurposeWords {
  std::array<const char*, FlightRing::purposes_max> owners{}, texts{};
  std::uint32_t with_part = 0;
};

PurposeWords purpose_words() {
  PurposeWords words;
  for (const bool shadow : {false, true}) {
    for (const PurposeTraits& row : purposes) {
      const Traffic traffic{row.purpose, shadow, 0, 0};
      const std::uint32_t number = traffic.pack() >> FlightRing::purpose_shift;
      words.owners[number] = owner_text(traffic);
      words.texts[number] = row.text;
      if (row.has_part) words.with_part |= 1u << number;
    }
  }
  return words;
}

}  // namespace

const FlightWords& flight_words() noexcept {
  static const auto ops = names<transport::op_table.last()>();
  static const auto dtypes = names<element_types.last()>();
  static const auto reductions = names<reduce_ops.last()>();
  static const PurposeWords of_purposes = purpose_words();
  static_assert(ops.size() <= FlightRing::ops_max && dtypes.size() <= FlightRing::dtypes_max &&
                reductions.size() <= FlightRing::reductions_max);
  static const FlightWords words{
      ops, dtypes, reductions, of_purposes.owners, of_purposes.texts, of_purposes.with_part};
  return words;
}

}  // namespace dlaunch
