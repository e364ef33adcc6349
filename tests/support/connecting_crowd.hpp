#pragma once

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace dlaunch::test {

/// As many descriptors as this process may have.
inline rlim_t raise_descriptors() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_cur;
}

/// Connections that one loop drives; each is told apart by its index. Throws Error.
class ConnectingCrowd {
 public:
  explicit ConnectingCrowd(const Address& server) : server_(server) {}

  void connect(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      require(bool(fd), "socket");
      const int rc =
          ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&server_.storage), server_.size);
      require(rc == 0 || errno == EINPROGRESS, "connect");
      epoll_event event{EPOLLOUT, {.u64 = fds_.size()}};
      require(::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0, "epoll_ctl");
      fds_.push_back(std::move(fd));
    }
  }
  /// HELLO as soon as they are connected, each in a session of its own; how many were welcomed, and
  /// not cut, until `deadline`.
  std::size_t greet(std::size_t count, Clock::time_point deadline) {
    std::size_t welcomed = 0, ended = 0;
    serve(deadline, [&](std::size_t who, std::uint32_t events) {
      if ((events & EPOLLIN) != 0) {
        std::array<char, 256> answer;
        const bool open = ::recv(fds_[who].get(), answer.data(), answer.size(), 0) > 0;
        watch(who, 0);
        ++(open ? welcomed : ended);
      } else {
        watch(who, EPOLLIN);
        wire::Hello said;
        said.session = who + 1;
        said.job = "crowd";
        Bytes hello;
        wire::encode_preface(hello);
        wire::encode_frame(hello, {}, said);
        ::send(fds_[who].get(), hello.data(), hello.size(), MSG_NOSIGNAL);
      }
      return welcomed + ended < count;
    });
    return welcomed;
  }
  /// A byte of the preface each; a peer that is gone will be seen by closed().
  void say(std::string_view byte) {
    for (const unique_fd& fd : fds_) {
      if (fd) ::send(fd.get(), byte.data(), byte.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  /// How many of them the server closes until `deadline`.
  std::size_t closed(Clock::time_point deadline) {
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      if (fds_[i]) watch(i, EPOLLIN);
    }
    std::size_t count = 0;
    const auto open = std::count_if(fds_.begin(), fds_.end(), [](auto& fd) { return bool(fd); });
    if (open == 0) return 0;
    serve(deadline, [&](std::size_t who, std::uint32_t) {
      fds_[who].reset();
      return ++count < static_cast<std::size_t>(open);
    });
    return count;
  }

 private:
  static void require(bool holds, const char* call) {
    if (!holds) throw Error(Errc::internal, std::string(call) + ": " + errno_text(errno));
  }
  void watch(std::size_t who, std::uint32_t events) {
    epoll_event event{events, {.u64 = who}};
    require(::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, fds_[who].get(), &event) == 0, "epoll_ctl");
  }
  void serve(Clock::time_point deadline,
             const std::function<bool(std::size_t, std::uint32_t)>& act) {
    std::array<epoll_event, 256> events;
    for (;;) {
      const int n = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()),
                                 poll_timeout_ms(deadline));
      if (n == 0) return;
      bool more = true;
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        more = act(event.data.u64, event.events);
      }
      if (!more) return;
    }
  }
  const Address server_;
  unique_fd poll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::vector<unique_fd> fds_;
};

}  // namespace dlaunch::test
