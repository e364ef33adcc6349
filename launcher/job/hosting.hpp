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

/// The rendezvous is elsewhere.
struct JoinElsewhere {
  /// The first address that is this host's, where somebody has its port: the rendezvous, or one
  /// that does not listen and keeps us from hosting. Empty where this node must not host.
  std::vector<Address> held = {};
};
/// Hosting cannot work; `sentence` says why, and what to do.
struct HostingProblem {
  int exit_code = 0;
  std::string sentence;
};

/// Finds out whether this node hosts the rendezvous by binding one of the addresses of its name,
/// since names may mislead and a bind does not. A listener: it hosts. Never binds a wildcard.
std::variant<unique_fd, JoinElsewhere, HostingProblem> bind_or_join(
    const JobSpec& spec, const std::vector<Address>& addresses);
/// A listener at the first of these that can be bound now; empty where none can.
unique_fd bind_one_of(const std::vector<Address>& addresses);

}  // namespace dlaunch::launcher
