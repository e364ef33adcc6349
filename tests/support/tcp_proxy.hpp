#pragma once

#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

namespace dlaunch::test {

/// A network that fails on demand: a TCP port whose connections lead to another one, until they
/// are cut, stalled (nothing is read any more) or swallowed (what is read goes nowhere).
class TcpProxy {
 public:
  enum class Mode { forward, stall, swallow };

  explicit TcpProxy(Address target)
      : target_(target),
        listener_(listen_tcp(resolve("127.0.0.1", 0).at(0))),
        kick_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~TcpProxy() {
    thread_.request_stop();
    kick();
  }

  Address address() const { return local_address(listener_.get()); }
  std::uint16_t port() const { return address().port(); }
  void set(Mode mode) {
    mode_ = mode;
    kick();
  }
  /// Closes every connection.
  void cut() {
    {
      const std::lock_guard lock(mutex_);
      for (const Pipe& pipe : pipes_) {
        ::shutdown(pipe.from.get(), SHUT_RDWR);
        ::shutdown(pipe.to.get(), SHUT_RDWR);
      }
    }
    kick();
  }
  /// Newcomers are closed at once, or let in again.
  void refuse(bool on) { refusing_ = on; }
  /// Newcomers are led there from now on.
  void lead_to(const Address& target) {
    const std::lock_guard lock(mutex_);
    target_ = target;
  }
  /// How many have come. A counted connection can be cut.
  int accepted() const { return accepted_; }

 private:
  struct Pipe {
    unique_fd from, to;
    std::vector<std::byte> waiting;  ///< Read from `from`, not yet taken by `to`.
    bool ended = false;
    int twin = 0;  ///< Both directions of a connection have the same number.
  };

  void kick() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(kick_.get(), &one, sizeof one);
  }
  static unique_fd copy_of(const unique_fd& fd) { return unique_fd(::dup(fd.get())); }

  void accept() {
    unique_fd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!near) return;
    if (refusing_) {
      ++accepted_;
      return;
    }
    unique_fd far;
    Address target;
    {
      const std::lock_guard lock(mutex_);
      target = target_;
    }
    try {
      far = connect_tcp(target, Clock::now() + std::chrono::seconds(5));
    } catch (const Error&) {
      return;  // Then the newcomer is closed, too.
    }
    const std::lock_guard lock(mutex_);
    const int number = accepted_ + 1;
    pipes_.push_back({copy_of(near), copy_of(far), {}, false, number});
    pipes_.push_back({std::move(far), std::move(near), {}, false, number});
    accepted_ = number;
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}, {kick_.get(), POLLIN, 0}};
      for (const Pipe& pipe : pipes_) {
        const bool full = !pipe.waiting.empty();
        const bool reads = !full && mode_ != Mode::stall;
        polled.push_back({reads ? pipe.from.get() : -1, POLLIN, 0});
        polled.push_back({full && mode_ == Mode::forward ? pipe.to.get() : -1, POLLOUT, 0});
      }
      ::poll(polled.data(), polled.size(), -1);
      std::uint64_t kicks = 0;
      [[maybe_unused]] const auto size = ::read(kick_.get(), &kicks, sizeof kicks);
      std::size_t at = 2;
      for (Pipe& pipe : pipes_) {
        if (polled[at].revents != 0) read_some(pipe);
        if (polled[at + 1].revents != 0) write_some(pipe);
        at += 2;
      }
      drop_ended();
      if ((polled[0].revents & POLLIN) != 0) accept();
    }
  }
  void read_some(Pipe& pipe) {
    std::array<std::byte, 64 << 10> buffer;
    const auto n = ::recv(pipe.from.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) pipe.ended = true;
    if (n <= 0 || mode_ == Mode::swallow) return;
    pipe.waiting.assign(buffer.begin(), buffer.begin() + n);
    write_some(pipe);
  }
  static void write_some(Pipe& pipe) {
    const auto n = ::send(pipe.to.get(), pipe.waiting.data(), pipe.waiting.size(),
                          MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) pipe.ended = true;
    if (n > 0) pipe.waiting.erase(pipe.waiting.begin(), pipe.waiting.begin() + n);
  }
  /// The end of one direction is the end of both, once everything is handed on.
  void drop_ended() {
    const std::lock_guard lock(mutex_);
    std::vector<int> over;
    for (const Pipe& pipe : pipes_) {
      if (pipe.ended) over.push_back(pipe.twin);
    }
    pipes_.remove_if([&](const Pipe& pipe) {
      return std::find(over.begin(), over.end(), pipe.twin) != over.end();
    });
  }

  Address target_;
  unique_fd listener_, kick_;
  std::atomic<Mode> mode_ = Mode::forward;
  std::atomic<bool> refusing_ = false;
  std::atomic<int> accepted_ = 0;
  std::mutex mutex_;  ///< Guards the list; the thread alone changes it, and what is in it.
  std::list<Pipe> pipes_;
  std::jthread thread_;
};

}  // namespace dlaunch::test
