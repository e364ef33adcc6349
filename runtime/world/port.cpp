#include "runtime/base/os/socket.hpp"

#include <dlaunch/port.hpp>

#include <cerrno>
#include <utility>

#include <netinet/in.h>

namespace dlaunch {
namespace {

void require_port(int port) {
  if (port >= 0 && port <= 65535) return;
  throw Error(Errc::misuse, std::to_string(port) + " is no TCP port: ports go from 0 to 65535");
}

/// Binds a wildcard address without SO_REUSEADDR: it conflicts with any socket on that port,
/// whatever its address and state. A family that this machine does not have is no conflict.
bool can_bind_any(int family, int port) {
  const unique_fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) {
    if (errno == EAFNOSUPPORT) return true;
    throw Error(Errc::unreachable, "cannot open a socket: " + errno_text(errno));
  }
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
  } else {
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof(sockaddr_in6);
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0) return true;
  return errno == EADDRNOTAVAIL;
}

}  // namespace

Listener::Listener(int port, std::string_view host) {
  require_port(port);
  unique_fd fd = listen_tcp(resolve(host, static_cast<std::uint16_t>(port)).at(0));
  port_ = local_address(fd.get()).port();
  fd_ = fd.release();
}

Listener::Listener(Listener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    port_ = other.port_;
  }
  return *this;
}

Listener::~Listener() {
  if (fd_ >= 0) ::close(fd_);
}

int Listener::release() noexcept { return std::exchange(fd_, -1); }

bool is_free_port(int port) {
  require_port(port);
  return can_bind_any(AF_INET, port) && can_bind_any(AF_INET6, port);
}

Listener find_free_port() { return Listener(); }

}  // namespace dlaunch
