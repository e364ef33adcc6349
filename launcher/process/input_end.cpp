#include "launcher/process/input_end.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dlaunch::launcher {

Parent Parent::at_start() {
  Parent parent;
  const pid_t pid = ::getppid();
  if (pid == 0) return parent;  // Outside of this process's pid namespace.
  parent.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // The number may be another process's by now.
  parent.gone = ::getppid() != pid || (!parent.process && errno == ESRCH);
  return parent;
}

InputEnd::InputEnd(boost::asio::io_context& io, const Parent& parent, std::function<void()> ended)
    : ended_(std::move(ended)), input_(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), either_(io) {
  unique_fd set(::epoll_create1(EPOLL_CLOEXEC));
  const auto add = [&](const unique_fd& fd) {
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd.get()}};
    return fd && ::epoll_ctl(set.get(), EPOLL_CTL_ADD, fd.get(), &wanted) == 0;
  };
  add(parent.process);
  boost::system::error_code error;
  if (!parent.gone && add(input_)) either_.assign(set.get(), error);
  if (either_.is_open()) {
    set.release();
    wait();
  } else {
    boost::asio::post(io, ended_);
  }
}

void InputEnd::wait() {
  either_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](auto error) {
    if (error == boost::asio::error::operation_aborted) return;
    error || has_ended() ? ended_() : wait();
  });
}

bool InputEnd::has_ended() {
  std::array<epoll_event, 2> events{};
  const int count =
      ::epoll_wait(either_.native_handle(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd != input_.get()) return true;
    const auto size = ::read(input_.get(), dropped_.data(), dropped_.size());
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return true;
  }
  return false;
}

}  // namespace dlaunch::launcher
