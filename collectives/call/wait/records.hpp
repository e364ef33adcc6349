#pragma once

#include "collectives/call/wait/call_frame.hpp"

#include <cstdint>
#include <optional>

/// What ranks called and do, by what they have recorded where this one can read it.
namespace dlaunch {

/// What this rank called under that number, as far as that is remembered.
std::optional<transport::Fingerprint> call_made(const CallFrame& frame, std::uint64_t sequence);

/// What a member of the shm group calls; nullopt if no record of it is left.
std::optional<transport::Fingerprint> call_of(const CallFrame& frame, int member,
                                              std::uint32_t hash);

/// What a rank that shares memory with this one does; nullopt for others.
std::optional<SeenDoing> recorded_doing(const CallFrame& frame, int world_rank);

}  // namespace dlaunch
