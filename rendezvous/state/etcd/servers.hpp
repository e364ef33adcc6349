#pragma once

#include "runtime/base/text/values.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The address of dlaunchd's state in etcd.
namespace dlaunch::rendezvous::etcd {

/// What `etcd:URL,...` names: members of one etcd, and the name under which one dlaunchd and those
/// that stand by for it keep their state there.
struct Servers {
  struct Server {
    std::string host;
    std::uint16_t port = 0;

    bool operator==(const Server&) const = default;
  };
  std::vector<Server> servers;
  std::string name = "default";

  bool operator==(const Servers&) const = default;
};

constexpr std::size_t servers_max = 9;
constexpr std::size_t name_size_max = 64;

/// Reads "http://HOST:PORT,http://HOST:PORT/NAME". Pure.
Read<Servers> read_servers(std::string_view urls);

/// "etcd at 10.0.0.1:2379, 10.0.0.2:2379 (NAME)", for sentences.
std::string to_string(const Servers& servers);

}  // namespace dlaunch::rendezvous::etcd
