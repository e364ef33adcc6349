#include "runtime/base/os/socket.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/directory.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr auto connect_backoff_first = std::chrono::milliseconds(2);
constexpr auto connect_backoff_max = std::chrono::milliseconds(500);

sockaddr* generic(Address& address) { return reinterpret_cast<sockaddr*>(&address.storage); }
const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

Error no_socket() { return Error(Errc::unreachable, "cannot open a socket: " + errno_text(errno)); }

unique_fd open_socket(int family) {
  unique_fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) throw no_socket();
  return fd;
}

/// 0, or the errno with which connecting failed.
int try_connect(int fd, const Address& to, Clock::time_point deadline) {
  set_nonblocking(fd, true);
  if (::connect(fd, generic(to), to.size) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    pollfd wait{fd, POLLOUT, 0};
    int ready = 0;
    do {
      ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  // A connection to itself would keep the port from the listener that comes later.
  if (is_connected_to_itself(fd)) return ECONNREFUSED;
  set_nonblocking(fd, false);
  return 0;
}

/// A row of the kernel's tables.
struct TcpSocket {
  unsigned long local_port = 0, remote_port = 0;
  bool listening = false, connected = false;
  std::string inode;
};

template <class Visit>
void for_each_tcp_socket(Visit visit) {
  const auto port_of = [](const std::string& address) {
    const auto colon = address.find(':');
    return colon == std::string::npos ? 0 : std::strtoul(address.c_str() + colon + 1, nullptr, 16);
  };
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmit, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmit >> uid >>
          timeout >> inode;
      visit(TcpSocket{port_of(local), port_of(remote), state == "0A", state == "01", inode});
    }
  }
}

/// The inodes of TCP sockets that use `port` locally, listeners first.
std::vector<std::string> inodes_of_port(std::uint16_t port) {
  std::vector<std::string> listening, bound;
  for_each_tcp_socket([&](const TcpSocket& socket) {
    if (socket.local_port == port) (socket.listening ? listening : bound).push_back(socket.inode);
  });
  listening.insert(listening.end(), bound.begin(), bound.end());
  return listening;
}

bool holds_socket(const std::string& pid, const std::string& inode) {
  const std::string folder = "/proc/" + pid + "/fd";
  const Directory fds(::opendir(folder.c_str()));
  if (!fds) return false;
  const std::string wanted = "socket:[" + inode + "]";
  while (const dirent* entry = ::readdir(fds.get())) {
    std::array<char, 64> target{};
    const std::string link = folder + "/" + entry->d_name;
    const auto size = ::readlink(link.c_str(), target.data(), target.size() - 1);
    if (size > 0 && wanted == std::string_view(target.data(), static_cast<std::size_t>(size))) {
      return true;
    }
  }
  return false;
}

/// The first process that has one of these sockets open.
std::optional<std::string> holder_of(const std::vector<std::string>& inodes) {
  const Directory proc(inodes.empty() ? nullptr : ::opendir("/proc"));
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const std::string& inode : inodes) {
      if (holds_socket(pid, inode)) return pid;
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string Address::host() const {
  std::array<char, NI_MAXHOST> text{};
  if (storage.ss_family == AF_UNIX) return to_string();
  ::getnameinfo(generic(*this), size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

std::uint16_t Address::port() const {
  if (storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

std::string Address::to_string() const {
  if (storage.ss_family == AF_UNIX) {
    const auto* un = reinterpret_cast<const sockaddr_un*>(&storage);
    const auto length = size - offsetof(sockaddr_un, sun_path);
    if (size <= offsetof(sockaddr_un, sun_path)) return "unix:(unnamed)";
    if (un->sun_path[0] == '\0') return "unix:@" + std::string(un->sun_path + 1, length - 1);
    return "unix:" + std::string(un->sun_path);
  }
  return host_port(host(), port());
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (storage.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  return storage.ss_family == AF_UNIX;
}

bool Address::is_link_local() const {
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&v6);
}

std::vector<Address> resolve(std::string_view host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string name(host);
  const int rc = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  // A bare system has no table of hosts; "localhost" is this host all the same (RFC 6761, 6.3).
  if (rc != 0 && name == "localhost") {
    auto both = resolve("127.0.0.1", port);
    both.push_back(resolve("::1", port).front());
    return both;
  }
  if (rc != 0) {
    const std::string why = rc == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(rc);
    throw Error(Errc::unreachable,
                "looking up the host name " + in_quotes(name) + " failed: " + why);
  }
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

Address unix_address(std::string_view name) {
  Address address;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  un->sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof un->sun_path) {
    throw Error(Errc::misuse, "the unix socket name " + in_quotes(name) + " has " +
                                  std::to_string(name.size()) + " characters; 1 to " +
                                  std::to_string(sizeof un->sun_path - 1) + " are possible");
  }
  std::memcpy(un->sun_path, name.data(), name.size());
  // An abstract name begins with a zero byte and has no terminator.
  if (name.front() == '@') un->sun_path[0] = '\0';
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                        (name.front() == '@' ? 0 : 1));
  return address;
}

unique_fd listen_tcp(const Address& at, int backlog) {
  unique_fd fd = try_listen_tcp(at, backlog);
  if (fd) return fd;
  throw listen_error(at, errno);
}

Error listen_error(const Address& at, int error) {
  std::string why = "listening on " + at.to_string() + ": " + errno_text(error);
  if (error != EADDRINUSE) return Error(Errc::unreachable, why);
  if (const auto owner = port_owner(at.port())) why += " by " + *owner;
  return Error(Errc::refused, why);
}

/// On failure empty, with errno. Until somebody listens, several sockets may bind a port, and if
/// they begin to listen at the same moment the kernel may refuse all of them. So a socket that was
/// bound and may not listen tries again after a random pause; one that is too late can then no
/// longer bind.
unique_fd try_listen_tcp(const Address& at, int backlog) {
  constexpr int tries_max = 10;
  std::minstd_rand random(static_cast<unsigned>(::getpid()) ^
                          static_cast<unsigned>(Clock::now().time_since_epoch().count()));
  for (int tries = 1;; ++tries) {
    unique_fd fd(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd && errno == EAFNOSUPPORT) return fd;
    if (!fd) throw no_socket();
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (at.storage.ss_family == AF_INET6) {
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    }
    const bool bound = ::bind(fd.get(), generic(at), at.size) == 0;
    if (bound && ::listen(fd.get(), backlog) == 0) return fd;
    const int error = errno;
    fd.reset();
    if (!bound || error != EADDRINUSE || tries == tries_max) {
      errno = error;
      return fd;
    }
    const auto pause = std::uniform_int_distribution<long>(100, 10'000)(random);
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
  }
}

unique_fd listen_unix(std::string_view name, int backlog) {
  const Address at = unix_address(name);
  unique_fd fd = open_socket(AF_UNIX);
  if (::bind(fd.get(), generic(at), at.size) != 0 || ::listen(fd.get(), backlog) != 0) {
    const int error = errno;
    throw Error(error == EADDRINUSE ? Errc::refused : Errc::unreachable,
                "listening on " + at.to_string() + ": " + errno_text(error));
  }
  return fd;
}

Address local_address(int fd) {
  Address address;
  address.size = sizeof address.storage;
  ::getsockname(fd, generic(address), &address.size);
  return address;
}

Address peer_address(int fd) {
  Address address;
  address.size = sizeof address.storage;
  if (::getpeername(fd, generic(address), &address.size) != 0) address.size = 0;
  return address;
}

bool is_of_same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

Error connect_error(const Address& to, int error) {
  const std::string where = "connecting to " + to.to_string();
  switch (error) {
    case ECONNREFUSED:
      return Error(Errc::unreachable, where + ": connection refused (nothing listens there)");
    case ETIMEDOUT:
      return Error(Errc::unreachable,
                   where + ": no answer (host down, or " + "filtered by a firewall)");
    case ENETUNREACH:
    case EHOSTUNREACH:
      return Error(Errc::unreachable, where + ": no route to that host");
    default:
      return Error(Errc::unreachable, where + ": " + errno_text(error));
  }
}

bool is_connected_to_itself(int fd) {
  const Address own = local_address(fd), other = peer_address(fd);
  return own.port() != 0 && own.port() == other.port() && own.host() == other.host();
}

unique_fd connect_tcp(const Address& to, Clock::time_point deadline) {
  unique_fd fd = open_socket(to.storage.ss_family);
  set_tcp_option(fd.get(), TCP_NODELAY, 1);
  if (const int error = try_connect(fd.get(), to, deadline)) throw connect_error(to, error);
  return fd;
}

unique_fd connect_unix(std::string_view name, Clock::time_point deadline) {
  const Address to = unix_address(name);
  unique_fd fd = open_socket(AF_UNIX);
  if (const int error = try_connect(fd.get(), to, deadline)) throw connect_error(to, error);
  return fd;
}

unique_fd connect_until(std::string_view host, std::uint16_t port, Clock::time_point deadline,
                        Notice notice) {
  auto pause = std::chrono::duration_cast<Clock::duration>(connect_backoff_first);
  for (;;) {
    try {
      std::optional<Error> last;
      const auto addresses = resolve(host, port);
      const auto until = notice.before(deadline);
      for (std::size_t i = 0; i < addresses.size(); ++i) {
        const auto now = Clock::now();
        const auto share = (until - now) / static_cast<int>(addresses.size() - i);
        try {
          return connect_tcp(addresses[i], now + share);
        } catch (const Error& error) {
          last = error;
        }
      }
      throw *last;
    } catch (const Error& error) {
      notice.tell(error.what());
      // The other side may just not be up yet: names appear late on Kubernetes, listeners late
      // everywhere. Only the deadline decides.
      if (Clock::now() + pause >= deadline) throw;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Clock::duration>(pause * 2, connect_backoff_max);
  }
}

std::pair<unique_fd, unique_fd> socket_pair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw Error(Errc::internal, "cannot open a socket pair: " + errno_text(errno));
  }
  return {unique_fd(fds[0]), unique_fd(fds[1])};
}

std::optional<std::string> port_owner(std::uint16_t port) {
  const auto pid = holder_of(inodes_of_port(port));
  if (!pid) return std::nullopt;
  std::ifstream comm("/proc/" + *pid + "/comm");
  std::string name;
  std::getline(comm, name);
  return "pid " + *pid + " (" + name + ")";
}

std::optional<pid_t> peer_process(const Address& own, const Address& peer) {
  std::vector<std::string> inodes;
  for_each_tcp_socket([&](const TcpSocket& socket) {
    const bool theirs = socket.local_port == peer.port() && socket.remote_port == own.port();
    if (theirs) inodes.push_back(socket.inode);
  });
  const auto pid = holder_of(inodes);
  return pid ? std::optional(static_cast<pid_t>(std::stol(*pid))) : std::nullopt;
}

std::vector<std::string> connections_to(std::uint16_t port) {
  std::vector<std::string> found;
  for_each_tcp_socket([&](const TcpSocket& socket) {
    if (socket.connected && socket.remote_port == port) {
      found.push_back("socket:[" + socket.inode + "]");
    }
  });
  return found;
}

void set_tcp_option(int fd, int name, int value) noexcept {
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value));
}

void set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

}  // namespace dlaunch
