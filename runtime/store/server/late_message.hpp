#pragma once

#include "runtime/store/protocol/wire.hpp"

namespace dlaunch::store {

/// A message that is made when it is sent: one event may have something to say to thousands, and to
/// write that takes longer than a turn lasts.
class LateMessage {
 public:
  virtual ~LateMessage() = default;
  virtual wire::Type type() const = 0;
  /// Appends the payload.
  virtual void encode(Bytes& out) const = 0;
};

}  // namespace dlaunch::store
