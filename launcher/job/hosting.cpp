#include "launcher/job/hosting.hpp"

#include "launcher/request/option_values.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>

namespace dlaunch::launcher {
namespace {

/// Debian's installer maps a host's own name to 127.0.1.1. A node that hosted there would be out of
/// the others' reach. A user who writes 127.0.0.1 or localhost means this host only.
std::optional<HostingProblem> unreachable_for_others(const JobSpec& spec,
                                                     const std::vector<Address>& addresses) {
  const std::string& name = spec.meeting.host;
  const bool loopback = std::all_of(addresses.begin(), addresses.end(),
                                    [](const Address& a) { return a.is_loopback(); });
  if (!loopback || is_loopback_name(name) || spec.nodes.most == 1) return std::nullopt;
  return HostingProblem{exit_code::usage,
                        in_quotes(name) + " is " + addresses.front().host() +
                            " on this host, where no other node can come: give its address "
                            "instead, or correct /etc/hosts"};
}

/// Whether this node has to host, whatever the bind says.
bool must_host(const JobSpec& spec) {
  if (spec.rdzv_role == RendezvousRole::host) return true;
  return spec.meeting.kind == Meeting::Kind::fixed && spec.node_rank == 0;
}

bool must_join(const JobSpec& spec) {
  if (is_socket(spec.meeting)) return true;
  if (spec.rdzv_role == RendezvousRole::join) return true;
  return spec.meeting.kind == Meeting::Kind::fixed && spec.node_rank.value_or(0) != 0;
}

}  // namespace

bool is_socket(const Meeting& meeting) { return meeting.host.starts_with(unix_prefix); }

std::string meeting_name(const Meeting& meeting) {
  return is_socket(meeting) ? meeting.host : host_port(meeting.host, meeting.port);
}

std::variant<unique_fd, JoinElsewhere, HostingProblem> bind_or_join(
    const JobSpec& spec, const std::vector<Address>& addresses) {
  if (must_join(spec)) return JoinElsewhere{};
  if (auto problem = unreachable_for_others(spec, addresses)) return std::move(*problem);
  JoinElsewhere elsewhere;
  unique_fd own;
  // If we hosted at one address while another program holds the port at the next, that program's
  // agents and ours would not find each other: "localhost" often has two addresses.
  for (const Address& address : addresses) {
    if (own && local_address(own.get()).to_string() == address.to_string()) continue;
    unique_fd listener = try_listen_tcp(address);
    if (!listener && errno == EADDRINUSE) {
      elsewhere.held = {address};
      break;
    }
    if (!own) own = std::move(listener);
  }
  if (own && elsewhere.held.empty()) return own;
  own.reset();
  if (!must_host(spec)) return elsewhere;
  std::string why;
  try {
    return listen_tcp(elsewhere.held.empty() ? addresses.front() : elsewhere.held.front());
  } catch (const Error& error) {
    why = error.what();
  }
  return HostingProblem{exit_code::unreachable, "this node is to host the rendezvous, but " + why};
}

unique_fd bind_one_of(const std::vector<Address>& addresses) {
  for (const Address& address : addresses) {
    if (unique_fd listener = try_listen_tcp(address)) return listener;
  }
  return {};
}

}  // namespace dlaunch::launcher
