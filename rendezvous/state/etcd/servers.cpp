#include "rendezvous/state/etcd/servers.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <variant>

namespace dlaunch::rendezvous::etcd {
namespace {

constexpr std::string_view plain = "http://", encrypted = "https://";

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= name_size_max && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

Read<Servers> read_servers(std::string_view urls) {
  Servers all;
  std::optional<std::string> name;
  for (std::string_view url : split(urls, ',')) {
    const std::string quoted = name_in_quotes(url);
    if (url.starts_with(encrypted)) {
      return Complaint{quoted +
                       ": https is not spoken to etcd; let etcd, or 'etcd grpc-proxy' beside "
                       "dlaunchd, listen on loopback with http"};
    }
    if (!url.starts_with(plain)) {
      return Complaint{quoted + " is not http://HOST:PORT, as in etcd:http://127.0.0.1:2379"};
    }
    url.remove_prefix(plain.size());
    if (url.find('@') != std::string_view::npos) {
      return Complaint{quoted + ": users and passwords of etcd are not supported"};
    }
    if (const auto slash = url.find('/'); slash != std::string_view::npos) {
      const std::string_view path = url.substr(slash + 1);
      url = url.substr(0, slash);
      if (!path.empty() && !is_name(path)) {
        return Complaint{quoted + ": the name behind the port has letters, digits and '-', '_', " +
                         "'.', " + std::to_string(name_size_max) + " of them at most"};
      }
      if (!path.empty() && name.value_or(std::string(path)) != path) {
        return Complaint{quoted + ": all URLs have the same name, or none"};
      }
      if (!path.empty()) name = path;
    }
    auto read = read_endpoint(url);
    if (const auto* wrong = std::get_if<Complaint>(&read)) {
      return Complaint{quoted + ": " + wrong->sentence};
    }
    auto& [host, port] = std::get<EndpointAsked>(read);
    if (host.empty() || !port || *port == 0) {
      return Complaint{quoted + " is not http://HOST:PORT, as in etcd:http://127.0.0.1:2379"};
    }
    all.servers.push_back({std::move(host), *port});
  }
  if (all.servers.empty()) return Complaint{"a URL is needed, as in etcd:http://127.0.0.1:2379"};
  if (all.servers.size() > servers_max) {
    return Complaint{"at most " + std::to_string(servers_max) + " URLs are allowed"};
  }
  all.name = name.value_or(all.name);
  return all;
}

std::string to_string(const Servers& servers) {
  return "etcd at " +
         joined(servers.servers,
                [](const Servers::Server& each) { return host_port(each.host, each.port); }) +
         " (" + servers.name + ")";
}

}  // namespace dlaunch::rendezvous::etcd
