#pragma once

#include "collectives/call/wait/call_frame.hpp"

#include <cstdint>
#include <optional>

/// Other ranks' calls and activity, from records that this rank can read.
namespace dlaunch {

/// This rank's call of that number, as far as it is remembered.
std::optional<transport::Fingerprint> call_made(const CallFrame& frame, std::uint64_t sequence);

/// The present call of a member of the shm group; nullopt if no record of it is left.
std::optional<transport::Fingerprint> call_of(const CallFrame& frame, int member,
                                              std::uint32_t hash);

/// The activity of a rank that shares memory with this one; nullopt for others.
std::optional<SeenDoing> recorded_doing(const CallFrame& frame, int world_rank);
/// Whether that rank, of this node, has made communicators by its record, and not this one.
bool lacks_communicator(const CallFrame& frame, int world_rank);

}  // namespace dlaunch
