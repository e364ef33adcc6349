#include "launcher/process/terminal_loan.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <paths.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// How long a worker gets to go on and begin its read; a slower one is stopped again, and asks
/// again.
constexpr auto loan_time = std::chrono::milliseconds(50);
/// How often we look whether we are in the foreground, since nothing tells us.
constexpr auto foreground_check = std::chrono::milliseconds(500);
/// How late we may hear of the end of a worker that got a signal while it had the terminal.
constexpr auto moment = std::chrono::seconds(1);

}  // namespace

unique_fd controlling_terminal() {
  return unique_fd(::open(_PATH_TTY, O_RDWR | O_NOCTTY | O_CLOEXEC));
}

TerminalLoan::TerminalLoan(boost::asio::io_context& io, Setting setting)
    : setting_(std::move(setting)), timer_(io) {}

void TerminalLoan::ask(pid_t worker, int rank) {
  if (!terminal_) terminal_ = controlling_terminal();
  const bool known = std::any_of(waiting_.begin(), waiting_.end(),
                                 [&](const auto& one) { return one.worker == worker; });
  if (!terminal_ || known) return;
  waiting_.push_back({worker, rank});
  // While it is lent, the timer goes on.
  if (borrower_ == 0 || setting_.for_good) serve();
}

bool TerminalLoan::was_lent_to(pid_t worker) const {
  const bool lately = last_borrower_ == worker && Clock::now() - taken_back_ < moment;
  return borrower_ == worker || lately;
}

void TerminalLoan::forget() {
  waiting_.clear();
  told_ = false;
}

/// Takes the terminal back from its borrower, and lends it to the next.
void TerminalLoan::serve() {
  const pid_t ours = ::getpgid(setting_.front);
  pid_t foreground = ::tcgetpgrp(terminal_.get());
  if (borrower_ != 0) {
    last_borrower_ = std::exchange(borrower_, 0);
    taken_back_ = Clock::now();
    if (foreground == last_borrower_ && ::tcsetpgrp(terminal_.get(), ours) == 0) foreground = ours;
  }
  if (waiting_.empty()) return;
  const Waiting next = waiting_.front();
  if (foreground != ours) {
    if (!std::exchange(told_, true)) {
      setting_.say("rank " + std::to_string(next.rank) +
                   " wants to use the terminal, and stands still: dlaunch is in the background "
                   "(the shell's fg brings it back)");
    }
    return serve_after(foreground_check);
  }
  waiting_.pop_front();
  told_ = false;
  // It fails if the worker has left its group, or is gone.
  if (::tcsetpgrp(terminal_.get(), next.worker) == 0) borrower_ = next.worker;
  ::kill(-next.worker, SIGCONT);
  if (!setting_.for_good) serve_after(loan_time);
}

void TerminalLoan::serve_after(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([this](auto error) {
    if (!error) serve();
  });
}

}  // namespace dlaunch::launcher
