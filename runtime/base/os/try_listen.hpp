#pragma once

#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"

namespace dlaunch {

/// As listen_tcp, for who only asks whether it can be: empty where it cannot. Nobody's name is
/// looked for, which takes tens of milliseconds.
unique_fd try_listen_tcp(const Address& at, int backlog = 4096);

}  // namespace dlaunch
