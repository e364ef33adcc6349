#include "launcher/request/meeting.hpp"

#include "runtime/base/os/peer_user.hpp"

#include <string_view>

namespace dlaunch::launcher {
namespace {

using Answer = std::variant<Meeting, MeetingProblem>;

/// Whether this node is alone: a job of one node is, unless it was told to join a rendezvous
/// elsewhere.
bool is_alone(const Draft& draft, const std::string& endpoint_host) {
  if (draft.standalone) return true;
  if (draft.nodes.most > 1 || draft.rdzv_role == RendezvousRole::join) return false;
  return endpoint_host.empty() || is_loopback_name(endpoint_host);
}

/// The socket of a dlaunchd under its unit, in a folder that root alone can make.
constexpr std::string_view service_socket = "/run/dlaunchd/dlaunchd.sock";

/// The socket of a dlaunchd on this host.
Answer at_socket(const Draft& draft) {
  const std::string_view path = std::string_view(draft.rdzv_endpoint).substr(unix_prefix.size());
  if (!path.empty() && !path.starts_with('/')) {
    return MeetingProblem{"rdzv-endpoint",
                          "a whole path is needed, as in unix:" + std::string(service_socket)};
  }
  if (draft.rdzv_role == RendezvousRole::host) {
    return MeetingProblem{"rdzv-role",
                          "a node hosts at HOST:PORT, where others can come; a unix socket is that "
                          "of a dlaunchd"};
  }
  const std::string_view own = path.empty() ? service_socket : path;
  return Meeting{Meeting::Kind::endpoint, std::string(unix_prefix) + std::string(own), 0};
}

Answer at_endpoint(const Draft& draft, const EndpointAsked& endpoint) {
  const auto port = endpoint.port.value_or(std::uint16_t(std::stoi(DLAUNCH_MEETING_PORT)));
  if (port == 0 && draft.nodes.most > 1) {
    return MeetingProblem{"rdzv-endpoint",
                          "the other nodes cannot know which port 0 becomes; give a port, for "
                          "example " DLAUNCH_MEETING_PORT};
  }
  return Meeting{Meeting::Kind::endpoint, endpoint.host, port};
}

Answer at_master(const Draft& draft) {
  if (draft.master_port == 0) {
    return MeetingProblem{"master-port",
                          "the other nodes cannot know which port 0 becomes; give a port, for "
                          "example 29500"};
  }
  if (draft.rdzv_role == RendezvousRole::host && draft.node_rank.value_or(0) != 0) {
    return MeetingProblem{"rdzv-role", "with --master-addr it is node rank 0 that hosts"};
  }
  return Meeting{Meeting::Kind::fixed, draft.master_addr, draft.master_port};
}

}  // namespace

Answer meeting_of(const Draft& draft, bool named) {
  if (draft.standalone && draft.nodes.most > 1) {
    return MeetingProblem{"nnodes", "--standalone is one node; leave one of the two out"};
  }
  EndpointAsked endpoint;
  const bool at_path = draft.rdzv_endpoint.starts_with(unix_prefix) && !draft.standalone;
  if (at_path) {
    endpoint.host = draft.rdzv_endpoint;
  } else if (!draft.rdzv_endpoint.empty() && !draft.standalone) {
    auto read = read_endpoint(draft.rdzv_endpoint);
    if (auto* complaint = std::get_if<Complaint>(&read)) {
      return MeetingProblem{"rdzv-endpoint", complaint->sentence};
    }
    endpoint = std::get<EndpointAsked>(std::move(read));
  }
  if (draft.node_rank.value_or(0) >= draft.nodes.most) {
    return MeetingProblem{"node-rank", "with " + std::to_string(draft.nodes.most) +
                                           (draft.nodes.most == 1 ? " node" : " nodes") +
                                           " the last node rank is " +
                                           std::to_string(draft.nodes.most - 1) +
                                           " (--nnodes says how many there are)"};
  }
  if (is_alone(draft, endpoint.host)) return Meeting{};
  if (at_path) return at_socket(draft);
  if (!endpoint.host.empty()) return at_endpoint(draft, endpoint);
  // torchrun's static way: every node knows its rank and where rank 0 is.
  if (draft.node_rank || named) return at_master(draft);
  if (draft.nodes.most == 1) {
    return MeetingProblem{"rdzv-role", "there is nothing to host or join without --rdzv-endpoint"};
  }
  return MeetingProblem{"nnodes",
                        "the nodes need a place to meet: --rdzv-endpoint HOST:PORT, the same on "
                        "every node (HOST is one of them, or runs dlaunchd), or --node-rank and "
                        "--master-addr"};
}

}  // namespace dlaunch::launcher
