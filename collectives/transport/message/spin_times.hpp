#pragma once

#include <chrono>

namespace dlaunch::transport {

/// How long a rank that waits for another stays awake before it sleeps in poll(2), where each has a
/// processor of its own: about what it costs to sleep and to be woken. Beyond, spinning burns more
/// than it saves.
constexpr auto spin_time = std::chrono::microseconds(50);
/// The same where ranks share processors, and yield instead of spinning. The rank that is waited
/// for may need this very processor, so it takes a few turns of all of them until it has published;
/// a yield costs little where nobody else wants the processor. Longer than spin_time, because
/// sleeping here also costs the others time: each of them has to be woken in turn.
constexpr auto yield_time = std::chrono::microseconds(200);

}  // namespace dlaunch::transport
