#pragma once

#include <cstdint>
#include <string>

namespace dlaunch::transport {

/// The purpose of a collective. Those of a join, which a rank without inputs shadows, are never
/// taken for the program's own.
enum class Purpose : std::uint8_t {
  program,       ///< The program's own.
  present,       ///< Finds who is here, and what each begins.
  sync,          ///< Whether gradients are to be summed.
  source,        ///< Finds whose buffers and order count.
  buffers,       ///< Those of the source.
  gradients,     ///< One bucket of them; Traffic::part is which.
  unused,        ///< Which parameters nobody used.
  order,         ///< The order in which gradients become ready.
  parameters,    ///< Their description and first values.
  last_joiner,   ///< Finds who had inputs longest.
  final_values,  ///< The last joiner's parameters and buffers.
  joinable,      ///< All that a joinable of the program's own does.
};

/// A collective's purpose and what it belongs to, in the 31 bits that Options, fingerprints and
/// headers carry. A value.
struct Traffic {
  static constexpr int joinables_max = (1 << 10) - 1;
  static constexpr std::uint32_t shadow_bit = 1u << 30;
  /// Not a part of it, but beside it in fingerprints and headers: the buffers are CUDA's.
  static constexpr std::uint32_t device_bit = 1u << 31;

  Purpose purpose = Purpose::program;
  bool shadow = false;     ///< Made for a rank that has no inputs left.
  int joinable = 0;        ///< Its number on the communicator, from 1; 0: none.
  std::uint32_t part = 0;  ///< Modulo 2^16.

  constexpr std::uint32_t pack() const noexcept {
    return (part & 0xffffu) | static_cast<std::uint32_t>(joinable & joinables_max) << 16 |
           static_cast<std::uint32_t>(purpose) << 26 | (shadow ? shadow_bit : 0);
  }
  static constexpr Traffic unpack(std::uint32_t word) noexcept {
    return {static_cast<Purpose>(word >> 26 & 0xfu), (word & shadow_bit) != 0,
            static_cast<int>(word >> 16 & joinables_max), word & 0xffffu};
  }
};

/// "who is here"; "gradients of bucket ", which goes on with the bucket's number; "" for the
/// program's own.
const char* to_string(Purpose purpose) noexcept;
/// The text before the call's name: "", "join's ", "join's shadow ", "the reducer's ".
const char* owner_text(const Traffic& traffic) noexcept;
/// "who is here", "gradients of bucket 3"; empty for the program's own.
std::string purpose_text(const Traffic& traffic);

}  // namespace dlaunch::transport
