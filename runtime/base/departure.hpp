#pragma once

#include "runtime/base/verdict.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace dlaunch {

/// How a rank went, in the form that travels to ranks that may wait for it; text_of makes a
/// sentence of it for people.
struct Departure {
  enum class Kind : std::uint8_t {
    left,       ///< It exited with 0.
    ended,      ///< It exited otherwise, or was killed.
    otherwise,  ///< Its process's end is not known: its node is lost, or its connection broke.
  };
  Kind kind = Kind::otherwise;
  int exit_code = 0;
  int signal = 0;
  bool core_dumped = false;
  /// The lost rank because of which it ended; nullopt: it did not say so.
  std::optional<int> missed = std::nullopt;
  std::string words = {};  ///< For people, where it is `otherwise`: "node b is lost: ...".

  static constexpr int some_rank = -1;  ///< In `missed`: a rank that it could not name.
  static Departure of(const Fact& fact);
  static Departure because(std::string words) { return {.words = std::move(words)}; }
  bool left() const { return kind == Kind::left; }
  bool operator==(const Departure&) const = default;
};
/// "killed by SIGKILL", "exited with 3, for the loss of rank 2", "exited with 0 before the others".
std::string text_of(const Departure& departure);

}  // namespace dlaunch
