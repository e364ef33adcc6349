#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// Whether the place is the unix socket of a dlaunchd on this host, which no agent can host.
bool is_socket(const Meeting& meeting);
/// "head:29400", "unix:/run/dlaunchd/dlaunchd.sock".
std::string meeting_name(const Meeting& meeting);

/// "looking up the host name 'head' failed: <answer>; it is tried again for up to 600 s". An empty
/// answer: the name service has given none. `over`: the time to try is up. With --hosts it tells
/// what to do about a name that only ssh knows.
std::string lookup_sentence(const JobSpec& spec, const std::string& answer, bool over);

/// The rendezvous is elsewhere.
struct JoinElsewhere {
  /// The first address that is this host's, where somebody has its port: the rendezvous, or one
  /// that does not listen and keeps us from hosting. Empty where this node must not host.
  std::vector<Address> held = {};
  /// The addresses at which this node would host, were their port free: those of hosting_order.
  std::vector<Address> places = {};
};
/// Hosting cannot work; `sentence` says why, and what to do.
struct HostingProblem {
  int exit_code = 0;
  std::string sentence;
};
/// One for each address of a name that is this host's. The others are told the first.
using Listeners = std::vector<unique_fd>;

/// The addresses of the meeting's name at which a node may host, the best first. Loopback addresses
/// are left out where nodes of other hosts may come: a host's own name often has one besides those
/// that others reach, and every host could bind its own. IPv4 comes before IPv6, since nodes that
/// lack one of them mostly lack IPv6; what is valid on one link only comes last.
std::vector<Address> hosting_order(const JobSpec& spec, std::vector<Address> addresses);

/// Listeners at those of the addresses that are this host's; none where somebody has the port at
/// one of them, which `held` then names.
Listeners bind_all_of(const std::vector<Address>& addresses, std::vector<Address>* held = nullptr);

/// Finds out whether this node hosts the rendezvous by binding the addresses of its name, since
/// names may mislead and a bind does not. At least one listener: it hosts. Never binds a wildcard.
std::variant<Listeners, JoinElsewhere, HostingProblem> host_or_join(
    const JobSpec& spec, const std::vector<Address>& addresses);

}  // namespace dlaunch::launcher
