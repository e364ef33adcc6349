#include "launcher/process/signal_inbox.hpp"

#include "runtime/base/os/socket.hpp"

#include <cerrno>
#include <csignal>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

int open_signals() {
  sigset_t all;
  sigfillset(&all);
  const int fd = ::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) throw Error(Errc::internal, "cannot open a signalfd: " + errno_text(errno));
  return fd;
}

}  // namespace

SignalInbox::SignalInbox(boost::asio::io_context& io, pid_t front, SignalListener& listener)
    : front_(front), listener_(listener), signals_(io, open_signals()) {
  read();
}

void SignalInbox::read() {
  signals_.async_read_some(boost::asio::buffer(buffer_), [this](auto error, std::size_t size) {
    if (error == boost::asio::error::operation_aborted) return;
    for (std::size_t i = 0; i < size / sizeof(signalfd_siginfo); ++i) take(buffer_[i]);
    read();
  });
}

void SignalInbox::take_pending() {
  for (;;) {
    signalfd_siginfo info{};
    const auto size = ::read(signals_.native_handle(), &info, sizeof info);
    if (size != static_cast<ssize_t>(sizeof info)) return;
    take(info);
  }
}

void SignalInbox::take(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) return listener_.on_child_change();
  if (number == front_lost_signal()) return listener_.on_front_lost();
  if (number != handed_on_signal() || static_cast<pid_t>(info.ssi_pid) != front_) return;
  const int handed_on = info.ssi_int;
  // A process gets these if it writes to a closed pipe, or uses the terminal from the background.
  if (handed_on == SIGPIPE || handed_on == SIGTTIN || handed_on == SIGTTOU) return;
  listener_.on_handed_on(handed_on);
}

}  // namespace dlaunch::launcher
