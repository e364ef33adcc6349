#pragma once

#include <dlaunch/export.hpp>

#include <string>
#include <string_view>

namespace dlaunch {

/// A TCP port that is bound once and kept: nothing is probed, let go and bound again, so nobody can
/// take it in between. For one thread at a time. Movable, not copyable; closes what it still holds.
class DLAUNCH_API Listener {
 public:
  /// Binds and listens on `host` (a name or an address), port 0..65535; 0 lets the kernel choose.
  /// Throws Error: misuse for another port, refused when it is busy (and by whom, where /proc lets
  /// us see it), unreachable when `host` is no address of this machine.
  explicit Listener(int port = 0, std::string_view host = "127.0.0.1");
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener();

  int port() const noexcept { return port_; }
  /// The listening socket, close-on-exec; -1 after release().
  int fd() const noexcept { return fd_; }
  /// Hands the socket over: the caller closes it.
  int release() noexcept;

 private:
  int fd_ = -1;
  int port_ = 0;
};

/// True if this process could bind the port now, on every address of the machine. A socket that is
/// bound and does not listen, one for IPv6 alone, one on 127.0.0.5 alone, and connections that are
/// still in TIME_WAIT all make it busy; so does a privileged port without the privilege. The answer
/// may be wrong a moment later: to have a port, bind it (Listener). Port 0 stands for any and is
/// free. Throws Error{misuse} out of 0..65535.
DLAUNCH_API bool is_free_port(int port);

/// A free port, already bound and listening on loopback: a number alone could be taken by another
/// process before it is used.
DLAUNCH_API Listener find_free_port();

}  // namespace dlaunch
