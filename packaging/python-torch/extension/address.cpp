#include "packaging/python-torch/extension/address.hpp"

#include <dlaunch/error.hpp>
#include <dlaunch/port.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dlaunch::torch_backend {
namespace {

using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Found looked_up(const std::string& host) {
  if (host.empty()) return {nullptr, &::freeaddrinfo};  // It would mean this one.
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // A datagram socket is connected to a port, and nothing is sent to it.
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) found = nullptr;
  return {found, &::freeaddrinfo};
}

std::string text_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  const Found found = looked_up(host);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    std::string text = text_of(each->ai_addr, each->ai_addrlen);
    if (!text.empty() && std::find(addresses.begin(), addresses.end(), text) == addresses.end()) {
      addresses.push_back(std::move(text));
    }
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_own(const std::string& address) {
  try {
    const Listener listener(0, address);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string own_address_toward(const std::string& host) {
  const Found found = looked_up(host);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const int fd = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool is_reached = ::connect(fd, each->ai_addr, each->ai_addrlen) == 0 &&
                            ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    ::close(fd);
    if (is_reached) return text_of(reinterpret_cast<const sockaddr*>(&own), size);
  }
  return "";
}

std::string own_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string own_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", none);
  return boot.empty() || network.empty() ? own_name() : boot + " " + network.string();
}

}  // namespace dlaunch::torch_backend
