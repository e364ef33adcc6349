#include "launcher/process/capture.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch::launcher {
namespace {

/// -1 where it cannot be started.
pid_t start(const std::vector<std::string>& line, int output, bool with_stderr) {
  std::vector<char*> words;
  for (const auto& word : line) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (with_stderr) {
    ::posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = -1;
  const int error = ::posix_spawn(&child, words.front(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

}  // namespace

Captured capture(const std::vector<std::string>& line, const CaptureRules& rules) {
  Captured captured;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return captured;
  const unique_fd read_end(ends[0]);
  unique_fd write_end(ends[1]);
  const pid_t child = start(line, write_end.get(), rules.with_stderr);
  if (child < 0) return captured;
  write_end.reset();
  const auto deadline = Clock::now() + rules.patience;
  std::array<char, 4096> block;
  for (;;) {
    pollfd wait{read_end.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    captured.in_time = ready > 0;
    if (ready <= 0) break;
    const auto size = ::read(read_end.get(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    const std::size_t room = rules.bytes_max - captured.output.size();
    captured.output.append(block.data(), std::min(room, static_cast<std::size_t>(size)));
  }
  // The tool may live on after closing its output.
  const unique_fd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  captured.in_time =
      captured.in_time && process && ::poll(&ended, 1, poll_timeout_ms(deadline)) > 0;
  if (!captured.in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (captured.in_time && WIFEXITED(status)) captured.code = WEXITSTATUS(status);
  return captured;
}

}  // namespace dlaunch::launcher
