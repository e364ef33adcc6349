#pragma once

#include <cstdint>

namespace dlaunch::rendezvous {

/// The number of a use of a job's id that begins now. It is made of the time and of random bits, so
/// it is never given twice, even by a rendezvous that was restarted without its memory. It is
/// higher than `after`, and than all earlier ones here or elsewhere unless a wall clock went back.
/// It has 53 bits, which every reader of JSON keeps.
std::uint64_t new_incarnation(std::uint64_t after = 0);

}  // namespace dlaunch::rendezvous
