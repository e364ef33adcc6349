#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/os/socket.hpp"

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// An address of an interface that is up. Link-local ones, which mean something else on every link,
/// are left out.
struct InterfaceAddress {
  std::string name;
  Address address;
};
/// Throws Error{internal} where they cannot be listed.
std::vector<InterfaceAddress> interfaces_up();

/// The hosts at which the other nodes may reach this one, best first: --iface's address alone; else
/// `own`, the one on our connection to the rendezvous (the kernel has chosen it by its routes), and
/// then every other address of an interface that is up, unless `own` says that all nodes are on
/// this host. Throws Error{refused} with the interfaces there are, where --iface names none of
/// them.
std::vector<std::string> reachable_hosts(const JobSpec& spec, const Address& own);

}  // namespace dlaunch::launcher
