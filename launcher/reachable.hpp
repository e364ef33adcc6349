#pragma once

#include "launcher/options.hpp"
#include "runtime/base/socket.hpp"

#include <string>

namespace dlaunch::launcher {

/// Where the other nodes reach this one: --iface's address, else `own`, the one on our connection
/// to the rendezvous (the kernel has chosen it by its routes). Throws Error{refused} with the
/// interfaces there are, where --iface names none of them.
std::string reachable_host(const Options& options, const Address& own);

}  // namespace dlaunch::launcher
