#pragma once

#include "runtime/base/bytes.hpp"
#include "runtime/segment/flight.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace dlaunch {

/// The last collectives with a root that a rank has made. In such a call a rank may be done before
/// the others have come, and if ranks disagree on the root, none may ever notice. So all ranks
/// compare their windows at the end of each, and none gets further ahead than one window. Equal on
/// all ranks that have made the same calls. A plain value.
class RootedWindow {
 public:
  static constexpr std::size_t calls_max = 64;

  void add(const Flight::Call& call) noexcept {
    calls_[next_ % calls_max] = {call.sequence, Flight::digest_of(0, call)};
    ++next_;
  }
  /// Whether the call that was added last ends the window.
  bool is_full() const noexcept { return next_ % calls_max == 0; }
  /// The window in the form for other ranks.
  BytesView bytes() const noexcept { return std::as_bytes(std::span(calls_)); }
  struct Made {
    std::uint64_t sequence = 0;
    std::uint64_t digest = 0;  ///< The call's transport::number_of().
  };
  struct Difference {
    Made here, there;
  };
  /// The first call in which another rank's window differs.
  std::optional<Difference> find_difference(BytesView theirs) const noexcept;

 private:
  std::array<Made, calls_max> calls_{};
  std::size_t next_ = 0;
};

}  // namespace dlaunch
