#include "tests/gpu/command.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::gpu_test {
namespace {

using Time = std::chrono::steady_clock;

/// For a launcher that is told to end to have ended its workers.
constexpr std::chrono::seconds grace{15};

[[noreturn]] void become(const std::string& line, int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

/// Reads until the other end is closed; false at the deadline.
bool read_until(int pipe, Time::time_point deadline, bool shown, std::string& output) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Time::now()).count();
    if (left <= 0) return false;
    pollfd readable{pipe, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(left)) <= 0) continue;
    char some[4096];
    const auto got = ::read(pipe, some, sizeof some);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    output.append(some, static_cast<std::size_t>(got));
    if (!shown) continue;
    std::fwrite(some, 1, static_cast<std::size_t>(got), stdout);
    std::fflush(stdout);
  }
}

}  // namespace

int CommandResult::lines_with(std::string_view text) const {
  int found = 0;
  for (auto at = output.find(text); at != output.npos; at = output.find(text, at + 1)) ++found;
  return found;
}

CommandResult run_command(const std::string& line, std::chrono::seconds limit, bool shown) {
  CommandResult result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("there is no pipe");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) become(line, ends[1]);
  ::close(ends[1]);
  if (child < 0) throw std::runtime_error("there is no process for " + line);
  result.timed_out = !read_until(ends[0], Time::now() + limit, shown, result.output);
  if (result.timed_out) {
    ::kill(-child, SIGTERM);
    if (!read_until(ends[0], Time::now() + grace, shown, result.output)) ::kill(-child, SIGKILL);
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

}  // namespace dlaunch::gpu_test
