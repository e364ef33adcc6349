#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/base/enum_table.hpp"
#include "runtime/segment/flight.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace dlaunch {

/// The purpose of a collective. Those of a join, which a rank without inputs shadows, are never
/// taken for the program's own.
enum class Purpose : std::uint8_t {
  program,       ///< The program's own.
  present,       ///< Finds which ranks are here, and what each begins.
  sync,          ///< Whether gradients are to be summed.
  source,        ///< Finds whose buffers and order count.
  buffers,       ///< The buffers of the source.
  gradients,     ///< The gradients of one bucket, whose number is Traffic::part.
  unused,        ///< Which parameters nobody used.
  order,         ///< The order in which gradients become ready.
  parameters,    ///< The parameters' description and first values.
  last_joiner,   ///< Finds the rank that had inputs for longest.
  final_values,  ///< The last joiner's parameters and buffers.
  joinable,      ///< All collectives of a joinable that the program defines.
};

/// The properties of a purpose. A new one is an enumerator and a row.
struct PurposeTraits {
  Purpose purpose{};
  const char* owner = "an unknown ";  ///< Before the call's name. A number read off the wire may be
                                      ///< newer than this build.
  const char* text = "";              ///< What the call is for.
  bool has_part = false;              ///< Whether the text goes on with the call's part.
};
inline constexpr auto purposes =
    enum_table<&PurposeTraits::purpose, Purpose::program, Purpose::joinable>({
        {Purpose::program, "", ""},
        {Purpose::present, "join's ", "who is here"},
        {Purpose::sync, "join's ", "whether to sum gradients"},
        {Purpose::source, "join's ", "whose buffers count"},
        {Purpose::buffers, "the reducer's ", "buffers"},
        {Purpose::gradients, "the reducer's ", "gradients of bucket", true},
        {Purpose::unused, "the reducer's ", "unused parameters"},
        {Purpose::order, "the reducer's ", "order of the buckets"},
        {Purpose::parameters, "the reducer's ", "parameters"},
        {Purpose::last_joiner, "join's ", "who joined last"},
        {Purpose::final_values, "the reducer's ", "final values"},
        {Purpose::joinable, "a joinable's ", ""},
    });

/// A collective's purpose and what it belongs to, in the 31 bits of Fingerprint::traffic. A value.
struct Traffic {
  static constexpr int joinables_max = (1 << 10) - 1;

  Purpose purpose = Purpose::program;
  bool shadow = false;     ///< Whether it was made for a rank that has no inputs left.
  int joinable = 0;        ///< Its number on the communicator, from 1; 0: none.
  std::uint32_t part = 0;  ///< Modulo 2^16.

  constexpr std::uint32_t pack() const noexcept {
    return (part & 0xffffu) | static_cast<std::uint32_t>(joinable & joinables_max) << 16 |
           static_cast<std::uint32_t>(purpose) << FlightRing::purpose_shift |
           (shadow ? transport::shadow_bit : 0);
  }
  static constexpr Traffic unpack(std::uint32_t word) noexcept {
    return {static_cast<Purpose>(word >> FlightRing::purpose_shift & 0xfu),
            (word & transport::shadow_bit) != 0, static_cast<int>(word >> 16 & joinables_max),
            word & 0xffffu};
  }
};
static_assert(purposes.size() <= 16, "a purpose has four bits");

constexpr PurposeTraits traits_of(Purpose purpose) noexcept { return purposes.of(purpose); }
/// The text before the call's name: "", "join's ", "join's shadow ", "the reducer's ".
const char* owner_text(const Traffic& traffic) noexcept;
/// "who is here", "gradients of bucket 3"; empty for the program's own.
std::string purpose_text(const Traffic& traffic);

}  // namespace dlaunch
