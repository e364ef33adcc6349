#pragma once

#include "collectives/call/wait/call_frame.hpp"

/// What a call tells other ranks beside data.
namespace dlaunch {

/// That it failed here; waits for nobody, but gives the news a moment to leave.
void tell_failure(const CallFrame& frame, const Error& error, transport::Scope scope);

/// What is on this rank's streams and was not told; waits for nothing. Each rank compares what one
/// other has called with what it calls itself, so that of ranks that disagree two neighbours do;
/// messages are compared by those that receive them.
void tell_device_calls(const CallFrame& frame, CallHistory& history);

}  // namespace dlaunch
