#pragma once

#include "runtime/base/os/unique_fd.hpp"

namespace dlaunch {

/// Hands a descriptor over a unix socket, with one byte; waits for nothing. False: it was not sent.
bool send_descriptor(int socket, int fd);
/// The descriptor that has come, CLOEXEC; waits for nothing. Empty: none has.
unique_fd receive_descriptor(int socket);

}  // namespace dlaunch
