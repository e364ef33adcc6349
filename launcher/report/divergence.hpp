#pragma once

#include "runtime/segment/flight_log.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// Finds the call in which ranks diverge, from their records alone. Pure.
namespace dlaunch::launcher {

/// A collective, which all ranks of its communicator make under one number.
struct CallId {
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  auto operator<=>(const CallId&) const = default;
};

struct RankLog {
  int rank = 0;
  const FlightLog* log = nullptr;
};

/// A rank's relation to a call that others make.
struct CallPart {
  enum class Kind {
    none,    ///< It is not known to be in the communicator.
    absent,  ///< It has not reached the call.
    came,    ///< It has made the call, or its record is gone.
    other,   ///< It made another call under that number.
  };
  Kind kind = Kind::none;
  const FlightCall* made = nullptr;  ///< Its call, if a record is left.
};
CallPart part_in(const FlightLog& log, const CallId& call, const FlightCall::Terms& terms);

/// A call in which ranks differ, or from which some are absent.
struct Divergence {
  struct Made {
    int rank = 0;
    const FlightCall* call = nullptr;
  };
  CallId call;
  bool differs = false;
  std::vector<Made> made;
  std::vector<int> absent;
};

/// The earliest of all such calls.
std::optional<Divergence> first_divergence(std::span<const RankLog> ranks);

/// Two ranks that made different calls under one number, one of which has returned, so that it can
/// no longer report the mismatch.
std::optional<std::pair<Divergence::Made, Divergence::Made>> untold_difference(
    std::span<const RankLog> ranks);

/// Whether the call is over and did not fail.
bool has_returned(const FlightCall& call);

}  // namespace dlaunch::launcher
