#include "rendezvous/daemon/systemd.hpp"

#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <limits>
#include <mutex>
#include <stop_token>

#include <fcntl.h>
#include <sys/socket.h>

namespace dlaunch::rendezvous {

namespace {

/// More than one unit would ever pass; a limit on what is believed of a variable.
constexpr long activated_max = 64;

using Purpose = ActivatedSocket::Purpose;

std::optional<Purpose> purpose_of(std::string_view name) {
  if (name == "dlaunch") return Purpose::rendezvous;
  if (name == "http") return Purpose::http;
  return std::nullopt;
}

bool is_set(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && value != 0;
}

bool is_stream(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/// The variables concern the process they were set for; a child that inherits them is not meant.
bool meant_for(const std::optional<std::string>& pid, pid_t self) {
  return pid && *pid == std::to_string(self);
}

/// No value of a protocol line may begin another line.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\0'; }, ' ');
  return line;
}

std::string monotonic_now_us() {
  // The manager compares it with CLOCK_MONOTONIC, which is what Clock reads on Linux.
  const auto since = Clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

}  // namespace

Read<std::vector<ActivatedSocket>> take_activated_sockets(const Variable& variable, pid_t self,
                                                          int first_fd) {
  std::vector<ActivatedSocket> sockets;
  const auto count_text = variable("LISTEN_FDS");
  if (!count_text || !meant_for(variable("LISTEN_PID"), self)) return sockets;
  const auto count = read_integer(*count_text, 0, activated_max);
  if (const auto* wrong = std::get_if<Complaint>(&count)) {
    return Complaint{"LISTEN_FDS=" + *count_text + ": " + wrong->sentence};
  }
  const std::string names_text = variable("LISTEN_FDNAMES").value_or("");
  const auto names = split(names_text, ':');
  for (int i = 0; i < std::get<long>(count); ++i) {
    const int fd = first_fd + i;
    const auto index = static_cast<std::size_t>(i);
    const std::string name(index < names.size() ? names[index] : "unknown");
    const std::string which = "the socket '" + name + "' (descriptor " + std::to_string(fd) +
                              ") from the service manager";
    const auto purpose = purpose_of(name);
    if (!purpose) {
      return Complaint{which +
                       " has an unknown name: set FileDescriptorName=dlaunch (rendezvous) or "
                       "http (status) in its .socket unit"};
    }
    if (!is_stream(fd) || !is_set(fd, SO_ACCEPTCONN)) {
      return Complaint{which +
                       " is not a listening stream socket: its .socket unit needs ListenStream= "
                       "and Accept=no"};
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets.push_back({.purpose = *purpose, .fd = unique_fd(fd)});
  }
  return sockets;
}

std::optional<std::chrono::microseconds> watchdog_period(const Variable& variable, pid_t self) {
  const auto period = variable("WATCHDOG_USEC");
  const auto pid = variable("WATCHDOG_PID");
  if (!period || (pid && !meant_for(pid, self))) return std::nullopt;
  const auto read = read_integer(*period, 2, std::numeric_limits<long>::max());
  if (std::holds_alternative<Complaint>(read)) return std::nullopt;
  return std::chrono::microseconds(std::get<long>(read) / 2);
}

ServiceNotifier::ServiceNotifier(std::string_view socket) : socket_(socket) {
  if (socket_.empty()) return;
  fd_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd_) throw Error(Errc::internal, "no socket for NOTIFY_SOCKET: " + errno_text(errno));
}

void ServiceNotifier::starting(std::string_view status, std::chrono::microseconds at_most) {
  send("EXTEND_TIMEOUT_USEC=" + std::to_string(at_most.count()) + "\nSTATUS=" + one_line(status));
}

void ServiceNotifier::ready(std::string_view status) {
  send("READY=1\nSTATUS=" + one_line(status));
}

void ServiceNotifier::reloading() { send("RELOADING=1\nMONOTONIC_USEC=" + monotonic_now_us()); }

void ServiceNotifier::stopping(std::string_view status, std::chrono::microseconds at_most) {
  send("STOPPING=1\nEXTEND_TIMEOUT_USEC=" + std::to_string(at_most.count()) +
       "\nSTATUS=" + one_line(status));
}

void ServiceNotifier::status(std::string_view status) { send("STATUS=" + one_line(status)); }

void ServiceNotifier::alive() { send("WATCHDOG=1"); }

void ServiceNotifier::send(const std::string& state) {
  if (!fd_) return;
  const Address to = unix_address(socket_);
  const auto sent = ::sendto(fd_.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&to.storage), to.size);
  if (sent >= 0) return;
  throw Error(Errc::unreachable, "telling the service manager '" +
                                     state.substr(0, state.find('\n')) +
                                     "' at NOTIFY_SOCKET=" + socket_ + ": " + errno_text(errno));
}

LongStart::LongStart(std::string socket, std::string status,
                     std::optional<std::chrono::microseconds> watchdog, Times times) {
  if (socket.empty()) return;
  const auto period = watchdog ? std::min(times.period, *watchdog) : times.period;
  thread_ = std::jthread([socket = std::move(socket), status = std::move(status),
                          watched = watchdog, period,
                          limit = times.limit](const std::stop_token& stop) {
    // Signals are for those who come after.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    constexpr auto patience = std::chrono::seconds(60);  // Many periods of a machine without time.
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    const auto end = Clock::now() + limit;
    while (!stop.stop_requested() && Clock::now() < end) {
      try {
        ServiceNotifier manager(socket);
        manager.starting(status, patience);
        if (watched) manager.alive();
      } catch (const std::exception&) {  // It is tried again in time.
      }
      stopped.wait_for(lock, stop, period, [] { return false; });
    }
  });
}

}  // namespace dlaunch::rendezvous
