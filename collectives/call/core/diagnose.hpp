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

/// The exception of a failed call: its code, its sentence, and the ranks it blames. Pure.
CallError diagnose(const CallSnapshot& snapshot);

/// Whether two calls differ at most in arguments of which the fingerprint has a hash.
bool agree_but_for_argument(transport::Fingerprint one, const transport::Fingerprint& other);

}  // namespace dlaunch
