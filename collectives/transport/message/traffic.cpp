#include "collectives/transport/message/traffic.hpp"

namespace dlaunch::transport {

const char* owner_text(const Traffic& traffic) noexcept {
  if (traffic.shadow) return "join's shadow ";
  switch (traffic.purpose) {
    case Purpose::program:
      return "";
    case Purpose::present:
    case Purpose::sync:
    case Purpose::source:
    case Purpose::last_joiner:
      return "join's ";
    case Purpose::buffers:
    case Purpose::gradients:
    case Purpose::unused:
    case Purpose::order:
    case Purpose::parameters:
    case Purpose::final_values:
      return "the reducer's ";
    case Purpose::joinable:
      return "a joinable's ";
  }
  return "an unknown ";  // A number read off the wire may be newer than this build.
}

const char* to_string(Purpose purpose) noexcept {
  switch (purpose) {
    case Purpose::program:
    case Purpose::joinable:
      return "";
    case Purpose::present:
      return "who is here";
    case Purpose::sync:
      return "whether to sum gradients";
    case Purpose::source:
      return "whose buffers count";
    case Purpose::buffers:
      return "buffers";
    case Purpose::gradients:
      return "gradients of bucket ";
    case Purpose::unused:
      return "unused parameters";
    case Purpose::order:
      return "order of the buckets";
    case Purpose::parameters:
      return "parameters";
    case Purpose::last_joiner:
      return "who joined last";
    case Purpose::final_values:
      return "final values";
  }
  return "";
}

std::string purpose_text(const Traffic& traffic) {
  const std::string text = to_string(traffic.purpose);
  return traffic.purpose == Purpose::gradients ? text + std::to_string(traffic.part) : text;
}

}  // namespace dlaunch::transport
