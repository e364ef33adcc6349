#pragma once

#include <chrono>

namespace dlaunch::transport {

/// How long a rank that waits for another stays awake before it sleeps in poll(2). To sleep and to
/// be woken costs about 50 us, and as much again at the other end, which rings: a rank that comes
/// late by that much would make the others late in turn. (In HPCG ranks wait for 50 to 700 us for
/// their neighbours. With 50 us here they slept more than twice as often.) Where ranks share
/// processors they yield instead of spinning. Then the rank that is waited for may need this very
/// processor, so this is a few turns of all of them; a yield costs little where nobody else wants
/// the processor.
constexpr auto spin_time = std::chrono::microseconds(200);

}  // namespace dlaunch::transport
