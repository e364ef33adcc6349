#pragma once

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/text/values.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

/// The service manager's side of a daemon: what it hands over at the start, and what it is told.
/// The protocols are those of sd_listen_fds(3), sd_watchdog_enabled(3) and sd_notify(3); no
/// libsystemd. Everything here works, and does nothing, where there is no service manager.
namespace dlaunch::rendezvous {

/// The value of an environment variable; nullopt where it is not set.
using Variable = std::function<std::optional<std::string>(const char* name)>;

/// A listening socket that the service manager has opened for us.
struct ActivatedSocket {
  enum class Purpose { rendezvous, http };
  Purpose purpose = Purpose::rendezvous;
  unique_fd fd;
};

/// The descriptors that the manager passes begin here.
inline constexpr int first_activated_fd = 3;

/// Takes over the listening sockets of LISTEN_FDS, "dlaunch" and "http" by their names; none where
/// LISTEN_PID is not `self`. A complaint where a name is not known, where a descriptor is no
/// listening stream socket, or where the variables are no numbers. To be called once, before
/// anything else opens descriptors.
Read<std::vector<ActivatedSocket>> take_activated_sockets(const Variable& variable, pid_t self,
                                                          int first_fd = first_activated_fd);

/// How often WATCHDOG=1 is due: half of WATCHDOG_USEC, where that is set for `self`.
std::optional<std::chrono::microseconds> watchdog_period(const Variable& variable, pid_t self);

/// Tells the service manager how the service is. Not thread-safe. Each call sends one datagram and
/// does not wait; it throws Error where the manager cannot be told.
class ServiceNotifier {
 public:
  /// To a socket as NOTIFY_SOCKET names it: "/path" or "@abstract". Empty: there is no manager,
  /// and every call does nothing.
  explicit ServiceNotifier(std::string_view socket);

  bool active() const { return static_cast<bool>(fd_); }
  /// The manager may wait this long from now on for ready().
  void starting(std::string_view status, std::chrono::microseconds at_most);
  void ready(std::string_view status);
  void reloading();
  /// The manager may wait this long before it takes us for stuck.
  void stopping(std::string_view status, std::chrono::microseconds at_most);
  void status(std::string_view status);
  void alive();

 private:
  void send(const std::string& state);

  std::string socket_;
  unique_fd fd_;
};

/// While it lives, a start that takes long is not taken for one that has failed: the service
/// manager is told again and again, on a thread of its own, for as long as `limit` at most.
class LongStart {
 public:
  struct Times {
    std::chrono::microseconds period = std::chrono::seconds(5), limit = std::chrono::hours(1);
  };
  /// `socket` as NOTIFY_SOCKET names it; empty: there is no manager. `watchdog` as of
  /// watchdog_period: one that stood by before is watched already.
  LongStart(std::string socket, std::string status,
            std::optional<std::chrono::microseconds> watchdog, Times times);
  LongStart(std::string socket, std::string status,
            std::optional<std::chrono::microseconds> watchdog)
      : LongStart(std::move(socket), std::move(status), watchdog, Times()) {}

 private:
  std::jthread thread_;
};

}  // namespace dlaunch::rendezvous
