#include "launcher/machine/reachable.hpp"

#include "runtime/base/text/values.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

namespace dlaunch::launcher {
namespace {

/// A host with many containers has as many bridges; nobody tries all of their addresses.
constexpr std::size_t addresses_max = 16;

std::vector<unsigned char> bytes_of(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&v4->sin_addr);
    return {bytes, bytes + sizeof v4->sin_addr};
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&v6->sin6_addr);
  return {bytes, bytes + sizeof v6->sin6_addr};
}

/// "10.1.0.0/16", "fd00::/8".
struct Network {
  std::vector<unsigned char> bytes;
  long bits = 0;

  bool contains(const Address& address) const {
    const auto other = bytes_of(address);
    if (other.size() != bytes.size()) return false;
    for (long bit = 0; bit < bits; ++bit) {
      const auto byte = static_cast<std::size_t>(bit / 8);
      const auto mask = static_cast<unsigned char>(0x80u >> (bit % 8));
      if ((bytes[byte] & mask) != (other[byte] & mask)) return false;
    }
    return true;
  }
};

std::optional<Network> read_network(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string base = text.substr(0, slash);
  Network network;
  network.bytes.resize(base.find(':') == std::string::npos ? 4 : 16);
  const int family = network.bytes.size() == 4 ? AF_INET : AF_INET6;
  if (::inet_pton(family, base.c_str(), network.bytes.data()) != 1) return std::nullopt;
  const auto bits =
      read_integer(text.substr(slash + 1), 0, static_cast<long>(network.bytes.size()) * 8);
  if (!std::holds_alternative<long>(bits)) return std::nullopt;
  network.bits = std::get<long>(bits);
  return network;
}

}  // namespace

std::vector<InterfaceAddress> interfaces_up() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    throw Error(Errc::internal, "cannot list the network interfaces: " + errno_text(errno));
  }
  const std::unique_ptr<ifaddrs, decltype([](ifaddrs* p) { ::freeifaddrs(p); })> owner(list);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address address;
    address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.size);
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(
            &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr)) {
      continue;
    }
    found.push_back({entry->ifa_name, address});
  }
  return found;
}

std::vector<std::string> reachable_hosts(const JobSpec& spec, const Address& own) {
  std::vector<std::string> hosts;
  if (spec.iface.empty()) {
    // A unix socket shows nothing of how others reach this host.
    const bool unknown = own.storage.ss_family == AF_UNIX;
    if (!unknown) hosts.push_back(own.host());
    if (!unknown && own.is_loopback()) return hosts;
    if (unknown && spec.nodes.most == 1) return {"127.0.0.1"};
    for (const auto& [name, address] : interfaces_up()) {
      const std::string host = address.host();
      if (!address.is_loopback() && (hosts.empty() || host != hosts.front())) hosts.push_back(host);
    }
    if (hosts.empty()) hosts.emplace_back("127.0.0.1");
    if (hosts.size() > addresses_max) hosts.resize(addresses_max);
    return hosts;
  }
  const auto network = read_network(spec.iface);
  std::string known;
  for (const auto& [name, address] : interfaces_up()) {
    if (network ? network->contains(address) : name == spec.iface) return {address.host()};
    known += (known.empty() ? "" : ", ") + name + " " + address.host();
  }
  throw Error(Errc::refused,
              "--iface " + spec.iface +
                  ": no interface that is up has such a name or address; there are " + known);
}

}  // namespace dlaunch::launcher
