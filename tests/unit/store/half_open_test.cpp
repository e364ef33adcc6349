// A connection with a dead end: the kernel gives it up, too, however its bytes are waited for.
#include "tests/support/uplink_peer.hpp"

#include <charconv>
#include <filesystem>
#include <optional>

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

using AddressOf = int (*)(int, sockaddr*, socklen_t*);

/// For how many ms bytes may be unacknowledged on the TCP connection of this process one end of
/// which, its own or the other one, has this port.
std::optional<int> unacknowledged_ms_max(AddressOf end, std::uint16_t port) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    Address address;
    address.size = sizeof address.storage;
    if (end(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) continue;
    if (address.storage.ss_family != AF_INET || address.port() != port) continue;
    int ms = -1;
    socklen_t size = sizeof ms;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &size) == 0) return ms;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("bytes that nobody acknowledges end a connection, at both of its ends") {
  ServerThread server;
  auto options = UplinkPeer::options(server.native_address);
  options.silence_max = 7s;
  UplinkPeer peer(std::move(options));
  REQUIRE(peer.welcomed());
  const std::uint16_t port = peer.uplink->local_address().port();
  CHECK(unacknowledged_ms_max(::getsockname, port) == 7000);
  CHECK(unacknowledged_ms_max(::getpeername, port) == 60'000);
}
