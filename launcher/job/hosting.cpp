#include "launcher/job/hosting.hpp"

#include "launcher/request/option_values.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>

namespace dlaunch::launcher {
namespace {

/// A host with many containers has as many bridges, and its name may lead to all of them.
constexpr std::size_t listeners_max = 16;

bool is_for_one_node(const JobSpec& spec) { return spec.nodes.most == 1 && spec.spares == 0; }

/// Whether nodes on other hosts may come to the place. A user who writes 127.0.0.1 or localhost
/// means this host only.
bool other_hosts_may_come(const JobSpec& spec) {
  return !is_for_one_node(spec) && !is_loopback_name(spec.meeting.host);
}

/// Debian's installer and cloud-init map a host's own name to 127.0.1.1. A node that hosted there
/// would be out of the others' reach.
std::optional<HostingProblem> unreachable_for_others(const JobSpec& spec,
                                                     const std::vector<Address>& addresses) {
  const bool loopback = std::ranges::all_of(addresses, &Address::is_loopback);
  if (!loopback || !other_hosts_may_come(spec)) return std::nullopt;
  return HostingProblem{exit_code::usage,
                        in_quotes(spec.meeting.host) + " is " + addresses.front().host() +
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

std::string lookup_sentence(const JobSpec& spec, const std::string& answer, bool over) {
  const std::string time = duration_text(spec.rdzv_times.join);
  // The agents of --hosts are told their roles if dlaunch chose the place.
  const bool chosen = spec.ends_with_stdin && spec.rdzv_role != RendezvousRole::automatic;
  return "looking up the host name " + in_quotes(spec.meeting.host) +
         (answer.empty() ? ": no answer from the name service" : " failed: " + answer) +
         (over ? "; tried for " : "; it is tried again for up to ") + time +
         (chosen ? "; the nodes of --hosts meet at the first host, by its name in that list: "
                   "--rdzv-endpoint gives it a name or an address that all hosts know"
                 : "");
}

std::vector<Address> hosting_order(const JobSpec& spec, std::vector<Address> addresses) {
  if (other_hosts_may_come(spec)) std::erase_if(addresses, std::mem_fn(&Address::is_loopback));
  const auto is_v6 = [](const Address& one) { return one.storage.ss_family == AF_INET6; };
  std::ranges::stable_partition(addresses, std::not_fn(is_v6));
  std::ranges::stable_partition(addresses, std::not_fn(std::mem_fn(&Address::is_link_local)));
  return addresses;
}

/// If we hosted at one address while another program holds the port at the next, that program's
/// agents and ours would not find each other: "localhost" often has two addresses.
Listeners bind_all_of(const std::vector<Address>& addresses, std::vector<Address>* held) {
  Listeners own;
  for (const Address& address : addresses) {
    const auto is_bound = [at = address.to_string()](const unique_fd& fd) {
      return local_address(fd.get()).to_string() == at;
    };
    // A name may have an address twice.
    if (std::ranges::any_of(own, is_bound)) continue;
    if (own.size() == listeners_max) break;
    unique_fd listener = try_listen_tcp(address);
    if (listener) {
      own.push_back(std::move(listener));
    } else if (errno == EADDRINUSE) {
      if (held != nullptr) *held = {address};
      return {};
    }
  }
  return own;
}

std::variant<Listeners, JoinElsewhere, HostingProblem> host_or_join(
    const JobSpec& spec, const std::vector<Address>& addresses) {
  if (must_join(spec)) return JoinElsewhere{};
  if (auto problem = unreachable_for_others(spec, addresses)) return std::move(*problem);
  JoinElsewhere elsewhere;
  elsewhere.places = hosting_order(spec, addresses);
  Listeners own = bind_all_of(elsewhere.places, &elsewhere.held);
  if (is_for_one_node(spec) && own.size() > 1) own.resize(1);  // Nobody comes to the others.
  if (!own.empty()) return own;
  if (!must_host(spec)) return elsewhere;
  std::string why;
  try {
    if (!elsewhere.held.empty()) throw listen_error(elsewhere.held.front(), EADDRINUSE);
    own.push_back(listen_tcp(elsewhere.places.front()));
    return own;
  } catch (const Error& error) {
    why = error.what();
  }
  return HostingProblem{exit_code::unreachable, "this node is to host the rendezvous, but " + why};
}

}  // namespace dlaunch::launcher
