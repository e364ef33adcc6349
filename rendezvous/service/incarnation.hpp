#pragma once

#include <cstdint>

namespace dlaunch::rendezvous {

/// The number of a use of a job's id that begins now. Nobody gives it twice, also not a rendezvous
/// that was started again and knows nothing of what was before: it is made of the time and of
/// chance. It is higher than `after`, and than all that were given before, here or elsewhere, as
/// far as no wall clock went back. It has 53 bits, which every reader of JSON keeps.
std::uint64_t new_incarnation(std::uint64_t after = 0);

}  // namespace dlaunch::rendezvous
