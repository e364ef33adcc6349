#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>

namespace dlaunch {

/// Watches whether other ranks are in another call. A rank waits only for a few others, none of
/// which need notice that a further rank strays. Such a rank has published its call to its node, or
/// sent a message that does not belong to this call. Under the mesh's lock.
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
