#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>

namespace dlaunch {

/// Sees whether ranks are in another call. A rank waits for few others, of which none need know
/// that they are in another call: one that is in such a call has published it to its node, or sent
/// something that is not of this one. Under the mesh's lock.
class StrayWatch {
 public:
  explicit StrayWatch(const CallFrame& frame) : frame_(frame) {}

  std::optional<Ending> look(Clock::time_point now, NextLook& next);

 private:
  bool is_other(const transport::Fingerprint& theirs) const {
    return theirs.sequence <= frame_.fingerprint.sequence && theirs != frame_.fingerprint;
  }

  const CallFrame& frame_;
  Clock::time_point due_{};
};

}  // namespace dlaunch
