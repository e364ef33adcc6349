#pragma once

#include <chrono>

namespace dlaunch::transport {

/// How long a rank that waits for another stays awake before it sleeps in poll(2). To sleep and to
/// be woken costs about 50 us, and as much again at the other end, which rings: a rank that comes
/// late by that much would make the others late in turn. (In HPCG ranks wait for 50 to 700 us for
/// their neighbours. With 50 us here they slept more than twice as often.)
constexpr auto spin_time = std::chrono::microseconds(200);

/// The same where ranks share processors, and yield instead of spinning. The rank that is waited
/// for may need this very processor, and computes for milliseconds; a rank that sleeps meanwhile
/// comes back in the midst of another one's computing, or to a processor that has gone idle. A
/// yield costs little, whether or not another rank wants the processor.
constexpr auto crowded_spin_time = std::chrono::milliseconds(10);

}  // namespace dlaunch::transport
