#include "collectives/call/core/traffic.hpp"

namespace dlaunch {

const char* owner_text(const Traffic& traffic) noexcept {
  return traffic.shadow ? "join's shadow " : traits_of(traffic.purpose).owner;
}

std::string purpose_text(const Traffic& traffic) {
  const PurposeTraits row = traits_of(traffic.purpose);
  return row.has_part ? row.text + (" " + std::to_string(traffic.part)) : row.text;
}

}  // namespace dlaunch
