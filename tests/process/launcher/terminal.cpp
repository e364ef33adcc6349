#include "tests/process/launcher/terminal.hpp"

#include "runtime/base/deadline.hpp"
#include "tests/process/job.hpp"

#include <array>
#include <csignal>
#include <cstdlib>

#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace dlaunch::process_test {

Terminal::Terminal(std::vector<std::string> command) {
  int master = -1;
  pid_ = ::forkpty(&master, nullptr, nullptr, nullptr);
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    std::vector<char*> argv;
    for (auto& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::setenv("NO_COLOR", "1", 1);  // The prefixes would have colours.
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    ::execvp(argv[0], argv.data());
    ::_exit(124);
  }
  master_.reset(master);
}

Terminal::~Terminal() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Terminal::type(std::string_view keys) {
  REQUIRE(::write(master_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

bool Terminal::saw(std::string_view text) {
  const auto deadline = Clock::now() + patience;
  while (screen_.find(text) == std::string::npos) {
    pollfd wait{master_.get(), POLLIN, 0};
    if (::poll(&wait, 1, poll_timeout_ms(deadline)) <= 0) return false;
    std::array<char, 4096> block;
    const auto size = ::read(master_.get(), block.data(), block.size());
    if (size <= 0) return false;
    screen_.append(block.data(), static_cast<std::size_t>(size));
  }
  return true;
}

int Terminal::next_status() {
  // No descriptor tells of a stop, so this asks again and again.
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    int status = 0;
    const pid_t changed = ::waitpid(pid_, &status, WNOHANG | WUNTRACED);
    if (changed == pid_) {
      if (!WIFSTOPPED(status)) pid_ = -1;
      return status;
    }
    ::sched_yield();
  }
  return -1;
}

pid_t Terminal::foreground() const { return ::tcgetpgrp(master_.get()); }

bool Terminal::is_foreground(pid_t group) const {
  // No descriptor tells of this, either.
  const auto deadline = Clock::now() + patience;
  while (foreground() != group) {
    if (Clock::now() > deadline) return false;
    ::sched_yield();
  }
  return true;
}

bool Terminal::is_background(pid_t group) const {
  const auto deadline = Clock::now() + patience;
  while (foreground() == group) {
    if (Clock::now() > deadline) return false;
    ::sched_yield();
  }
  return true;
}

bool Terminal::echoes() const {
  termios settings{};
  REQUIRE(::tcgetattr(master_.get(), &settings) == 0);
  return (settings.c_lflag & ECHO) != 0;
}

}  // namespace dlaunch::process_test
