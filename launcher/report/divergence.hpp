#pragma once

#include "runtime/segment/flight_log.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// The call in which ranks go apart: pure, from their records alone.
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

/// What a rank has to do with a call that others make.
struct CallPart {
  enum class Kind {
    none,    ///< It is not known to have the communicator.
    absent,  ///< It has not come so far.
    came,    ///< It has made the call, or no record of what it made is left.
    other,   ///< It made another call under that number.
  };
  Kind kind = Kind::none;
  const FlightCall* made = nullptr;  ///< What it made, where a record is left.
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

/// The one of all such calls that began first.
std::optional<Divergence> first_divergence(std::span<const RankLog> ranks);

/// Two ranks that made different calls under one number, of which one has returned: it cannot tell
/// any more.
std::optional<std::pair<Divergence::Made, Divergence::Made>> untold_difference(
    std::span<const RankLog> ranks);

/// It is over, and did not fail.
bool has_returned(const FlightCall& call);

}  // namespace dlaunch::launcher
