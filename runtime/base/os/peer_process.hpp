#pragma once

#include "runtime/base/os/socket.hpp"

#include <optional>

#include <sys/types.h>

namespace dlaunch {

/// The process at the other end of a TCP connection within this host, by the connection's two
/// addresses; nullopt where /proc does not show it.
std::optional<pid_t> peer_process(const Address& own, const Address& peer);

}  // namespace dlaunch
