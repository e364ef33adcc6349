#pragma once

#include "collectives/call/core/call_context.hpp"
#include "collectives/call/core/call_error.hpp"
#include "collectives/call/core/ending.hpp"

namespace dlaunch {

/// A call that has failed.
struct CallSnapshot {
  CallContext call;
  Ending ending;
};

/// What the call throws: its code, its sentence, and whom it blames. Pure.
CallError diagnose(const CallSnapshot& snapshot);

/// They differ at most in what the fingerprint has a hash of.
bool agree_but_for_argument(transport::Fingerprint one, const transport::Fingerprint& other);

}  // namespace dlaunch
