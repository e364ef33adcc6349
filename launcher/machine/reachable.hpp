#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/os/socket.hpp"

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// The hosts at which the other nodes may reach this one, best first: --iface's address alone; else
/// `own`, the one on our connection to the rendezvous (the kernel has chosen it by its routes), and
/// then every other address of an interface that is up, unless `own` says that all nodes are on
/// this host. Throws Error{refused} with the interfaces there are, where --iface names none of
/// them.
std::vector<std::string> reachable_hosts(const JobSpec& spec, const Address& own);

}  // namespace dlaunch::launcher
