#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>

/// News that end a call, as far as they are known without waiting. Under the mesh's lock.
namespace dlaunch {

/// The communicator was ended here, or another rank told of a failure that concerns this call.
std::optional<Ending> find_told(const CallFrame& frame);

/// The same, and other ranks' calls that differ, in this call or an earlier one. `receive` is the
/// call's receive; may be null.
std::optional<Ending> find_news(const CallFrame& frame, const transport::Receive* receive);

}  // namespace dlaunch
