#include "collectives/transport/flight_words.hpp"

#include "collectives/reduce/reduce_ops.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/traffic.hpp"

#include <array>
#include <functional>

namespace dlaunch::transport {
namespace {

/// The names of the numbers 1 to `Last`; nothing has the number 0.
template <auto Last>
auto names() {
  using Enum = decltype(Last);
  std::array<const char*, static_cast<std::size_t>(Last) + 1> names{};
  for (std::size_t i = 1; i < names.size(); ++i) names[i] = to_string(static_cast<Enum>(i));
  return names;
}

constexpr std::size_t shadows = FlightRing::shadow_bit >> FlightRing::purpose_shift;

/// The texts of all purposes, and once more as a shadow has them.
auto purposes(const std::function<const char*(const Traffic&)>& text) {
  std::array<const char*, FlightRing::purposes_max> names{};
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(Purpose::joinable); ++i) {
    const auto purpose = static_cast<Purpose>(i);
    names[i] = text({purpose, false, 0, 0});
    names[std::size_t{i} + shadows] = text({purpose, true, 0, 0});
  }
  return names;
}

}  // namespace

const FlightWords& flight_words() noexcept {
  static const auto ops = names<op_table.back().op>();
  static const auto dtypes = names<element_types.back().dtype>();
  static const auto reductions = names<reduce_ops.back().op>();
  static const auto owners = purposes(owner_text);
  static const auto reasons =
      purposes([](const Traffic& traffic) { return to_string(traffic.purpose); });
  static_assert(Traffic{Purpose::present, true, 0, 9}.pack() ==
                (static_cast<std::uint32_t>(Purpose::present) << FlightRing::purpose_shift |
                 FlightRing::shadow_bit | 9));
  static_assert(ops.size() <= FlightRing::ops_max && dtypes.size() <= FlightRing::dtypes_max &&
                reductions.size() <= FlightRing::reductions_max);
  static const FlightWords words{ops, dtypes, reductions, owners, reasons};
  return words;
}

}  // namespace dlaunch::transport
