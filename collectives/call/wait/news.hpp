#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>

/// What a call hears that ends it, by what is known without waiting. Under the mesh's lock.
namespace dlaunch {

/// The communicator was ended here, or another rank told of a failure that concerns this call.
std::optional<Ending> find_told(const CallFrame& frame);

/// That, and what other ranks call, in this call or in one before it. `receive`: what the call
/// waits for; may be null.
std::optional<Ending> find_news(const CallFrame& frame, const transport::Receive* receive);

}  // namespace dlaunch
