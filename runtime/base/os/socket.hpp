#pragma once

#include "runtime/base/notice.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>

/// Sockets in a few verbs. Every descriptor is close-on-exec. Errors are dlaunch::Error with a
/// sentence that names the step (lookup, bind, connect) and the address.
namespace dlaunch {

/// A limit on the kernel's pauses before it sends a packet again (an option of Linux 6.15, which
/// headers may not know). On a network that loses many packets the pauses double, and would outlast
/// a lease.
constexpr int tcp_rto_max_ms = 44;
constexpr int resend_pause_ms_max = 1000;

/// A resolved numeric address.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  std::string host() const;       ///< Numeric, without brackets: "127.0.0.1", "::1".
  std::uint16_t port() const;     ///< 0 for a unix socket.
  std::string to_string() const;  ///< "127.0.0.1:29500", "[::1]:29500", "unix:@name".
  bool is_loopback() const;
  bool is_link_local() const;  ///< Of IPv6: it is valid on one link only.
};

/// Looks a name up (numeric addresses are taken as they are); at least one address or
/// Errc::unreachable with the resolver's reason.
std::vector<Address> resolve(std::string_view host, std::uint16_t port);

/// An abstract unix socket ("@name"), or a path.
Address unix_address(std::string_view name);

/// Binds and listens at once; port 0 lets the kernel choose. SO_REUSEADDR is set, so a port in
/// TIME_WAIT is free. Errc::refused on EADDRINUSE, naming the owner where /proc shows it.
unique_fd listen_tcp(const Address& at, int backlog = 4096);
/// As listen_tcp, for a caller that expects failure: empty, with errno, also where the kernel lacks
/// the address's family. It does not look for the port's owner, which takes tens of milliseconds.
unique_fd try_listen_tcp(const Address& at, int backlog = 4096);
unique_fd listen_unix(std::string_view name, int backlog = 4096);
Address local_address(int fd);
Address peer_address(int fd);

/// Connects until `deadline`; TCP_NODELAY set; the result is blocking. Errc::unreachable says
/// whether it was refused, filtered (no answer) or without a route.
unique_fd connect_tcp(const Address& to, Clock::time_point deadline);
unique_fd connect_unix(std::string_view name, Clock::time_point deadline);
/// The error with which listening on `at` failed, by errno; it names who holds the port.
Error listen_error(const Address& at, int error);
/// The error with which connecting to `to` failed, by errno: refused, filtered, no route.
Error connect_error(const Address& to, int error);
/// Whether the kernel connected this socket to itself, as it may on a loopback port that nobody
/// listens on.
bool is_connected_to_itself(int fd);
/// connect_tcp over every address of a name, again and again with backoff until the deadline while
/// the other side is not yet there (refused, name not yet known); the last reason is reported. An
/// address that is silent leaves the others their share of the time.
unique_fd connect_until(std::string_view host, std::uint16_t port, Clock::time_point deadline,
                        Notice notice = {});

/// Whether a process of our user, or of root, is at the other end of a unix socket.
bool is_of_same_user(int fd);

/// A connected pair of AF_UNIX stream sockets.
std::pair<unique_fd, unique_fd> socket_pair();

/// The process at the other end of a TCP connection within this host, by the connection's two
/// addresses; nullopt where /proc does not show it.
std::optional<pid_t> peer_process(const Address& own, const Address& peer);

/// This host's TCP connections to that port of any host, as /proc/PID/fd names them:
/// "socket:[4711]".
std::vector<std::string> connections_to(std::uint16_t port);

/// "pid 1234 (python3)" for the process that listens on or is bound to this TCP port, where /proc
/// lets us see it.
std::optional<std::string> port_owner(std::uint16_t port);

void set_nonblocking(int fd, bool on);
/// Sets an option of TCP that not every kernel has, and that the caller can do without.
void set_tcp_option(int fd, int name, int value) noexcept;
/// Whether an error is a lack of descriptors or memory, which may pass.
bool is_shortage(int error) noexcept;
/// "Connection refused" and the like, thread-safe.
std::string errno_text(int error);
/// A call on a socket that does not block found nothing to do.
inline bool would_block(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace dlaunch
