#pragma once

#include "collectives/call/wait/call_frame.hpp"

/// The messages of a call to other ranks, besides data.
namespace dlaunch {

/// Tells that the call failed here; waits for nobody, but gives the news a moment to leave.
void tell_failure(const CallFrame& frame, const Error& error, transport::Scope scope);

/// Tells of calls on this rank's streams that were not told yet; waits for nothing. Each rank
/// compares one other's calls with its own, so that if ranks disagree, some two neighbours notice
/// it; messages are compared by their receivers.
void tell_device_calls(const CallFrame& frame, CallHistory& history);

}  // namespace dlaunch
