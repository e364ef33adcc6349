// Which process an object was made in, whichever way a child came to be.
#include "runtime/base/os/home_process.hpp"

#include <csignal>
#include <functional>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using dlaunch::home_fd;
using dlaunch::HomeProcess;
using dlaunch::unique_fd;

namespace {

/// Whether it holds in a child that `fork` makes.
bool holds_in_child(const std::function<pid_t()>& fork, const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(holds() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

/// Without what fork(3) does beside.
pid_t bare_fork() { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

}  // namespace

TEST_CASE("a forked child is not at home, what it makes is, and its own children are not") {
  for (const auto& fork : {std::function<pid_t()>(::fork), std::function<pid_t()>(bare_fork)}) {
    const HomeProcess parents;
    CHECK(parents.is_here());
    CHECK(holds_in_child(fork, [&] {
      const bool was_here = parents.is_here();
      const HomeProcess own;
      return !was_here && !parents.is_here() && own.is_here() && holds_in_child(fork, [&] {
        const HomeProcess grandchilds;
        return !parents.is_here() && !own.is_here() && grandchilds.is_here();
      }) && own.is_here();
    }));
    CHECK(parents.is_here());
  }
}

TEST_CASE("a child of another thread is not at home") {
  const HomeProcess parents;
  bool right = false;
  std::thread([&] {
    right = parents.is_here() && holds_in_child(::fork, [&] { return !parents.is_here(); });
  }).join();
  CHECK(right);
}

#ifndef __SANITIZE_THREAD__  // It makes a fork of vfork.
TEST_CASE("a child that has its parent's memory until it executes something is at home") {
  static HomeProcess parents;
  const pid_t child = ::vfork();
  if (child == 0) ::_exit(parents.is_here() ? 0 : 1);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(parents.is_here());
}
#endif

namespace {

unique_fd some_file() { return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("a forked child has no descriptor of its parent's connections") {
  home_fd kept = some_file();
  const unique_fd ordinary = some_file();
  home_fd moved = some_file();
  kept = std::move(moved);
  const int fd = kept.get();
  CHECK(is_open(fd));
  CHECK(holds_in_child(::fork, [&] { return !is_open(fd) && is_open(ordinary.get()); }));
  CHECK(is_open(fd));
  kept.reset();
  CHECK(!is_open(fd));
}

TEST_CASE("a forked child that lets go of it closes nothing of its own") {
  home_fd kept = some_file();
  CHECK(holds_in_child(::fork, [&] {
    const home_fd own = some_file();  // It has the number that has become free.
    const bool is_same = own.get() == kept.get();
    kept.reset();
    return is_same && is_open(own.get()) &&
           holds_in_child(::fork, [&] { return !is_open(own.get()); });
  }));
}

TEST_CASE("a descriptor that is given away is an ordinary one") {
  home_fd kept = some_file();
  const unique_fd given = kept.release();
  CHECK(!kept);
  CHECK(holds_in_child(::fork, [&] { return is_open(given.get()); }));
}
