#include "collectives/transport/flight_words.hpp"

#include "collectives/transport/message.hpp"

#include <array>

namespace dlaunch::transport {
namespace {

/// Of the numbers 1 to `Last`; nothing has the number 0.
template <auto Last>
auto names() {
  using Enum = decltype(Last);
  std::array<const char*, static_cast<std::size_t>(Last) + 1> names{};
  for (std::size_t i = 1; i < names.size(); ++i) names[i] = to_string(static_cast<Enum>(i));
  return names;
}

}  // namespace

const FlightWords& flight_words() noexcept {
  static const auto ops = names<Op::probe>();
  static const auto dtypes = names<DType::c128>();
  static const auto reductions = names<ReduceOp::custom>();
  static_assert(ops.size() <= FlightRing::ops_max && dtypes.size() <= FlightRing::dtypes_max &&
                reductions.size() <= FlightRing::reductions_max);
  static const FlightWords words{ops, dtypes, reductions};
  return words;
}

}  // namespace dlaunch::transport
