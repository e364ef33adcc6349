#include "tests/process/job.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch::process_test {
namespace {

/// As much as can be read: a process may end in the middle, which to a stream is an exception.
std::string slurp(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> block;
  for (ssize_t size = 0; (size = ::read(file.get(), block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<std::size_t>(size));
  }
  return text;
}

/// Waits for the end of a process that is not our child.
bool wait_gone(pid_t pid, Clock::time_point deadline) {
  const unique_fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return errno == ESRCH;
  pollfd wait{fd.get(), POLLIN, 0};
  return ::poll(&wait, 1, poll_timeout_ms(deadline)) == 1;
}

/// Jobs of tests that run at the same time would tell on stderr that another one has their port.
[[maybe_unused]] const int any_port = ::setenv("DLAUNCH_MASTER_PORT", "0", 0);

}  // namespace

int count(std::string_view text, std::string_view word) {
  int found = 0;
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

std::string unique_token() {
  static int counter = 0;
  return "token-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + "-end";
}

std::vector<pid_t> processes_with(std::string_view token) {
  std::vector<pid_t> found;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // A zombie has no command line any more: it is the business of whoever reaps it.
    if (slurp("/proc/" + name + "/cmdline").find(token) != std::string::npos) {
      found.push_back(std::stoi(name));
    }
  }
  ::closedir(proc);
  return found;
}

bool all_gone(std::string_view token) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const auto left = processes_with(token);
    if (left.empty()) return true;
    for (const pid_t pid : left) {
      if (!wait_gone(pid, deadline)) return false;
    }
  }
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

namespace {

/// The text after "NAME:" in /proc/PID/status.
std::string status_field(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  }
  return "";
}

/// For what the kernel tells by no event.
template <class Condition>
bool soon(Condition condition) {
  const auto deadline = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    ::sched_yield();
  }
  return true;
}

}  // namespace

pid_t pid_inside(pid_t pid) {
  const std::string ids = status_field(pid, "NSpid");
  return ids.empty() ? 0 : std::stoi(ids.substr(ids.find_last_of('\t') + 1));
}

bool zombies_reaped(pid_t parent) {
  return soon([&] {
    const auto children = children_of(parent);
    return std::none_of(children.begin(), children.end(), [](pid_t child) {
      return status_field(child, "State").find('Z') != std::string::npos;
    });
  });
}

std::string victim() { return DLAUNCH_BINARY_DIR "/tests/victim"; }
std::string dlaunch_path() { return DLAUNCH_BINARY_DIR "/bin/dlaunch"; }

Job::Job(std::vector<std::string> arguments, const Environment& environment, std::string program) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!environment.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv, envp;
  for (auto& argument : arguments) argv.push_back(argument.data());
  for (auto& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int out[2], err[2];
  REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(err, O_CLOEXEC) == 0);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    // A shell that runs the tests in the background has them ignore SIGINT.
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    ::execvpe(program.c_str(), argv.data(), envp.data());
    ::_exit(124);
  }
  ::close(out[1]);
  ::close(err[1]);
  out_pipe_.reset(out[0]);
  err_pipe_.reset(err[0]);
}

Job::~Job() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

pid_t Job::agent() const {
  const auto children = children_of(pid_);
  REQUIRE(children.size() == 1);
  return children.front();
}

void Job::send(int signal_number) const { REQUIRE(::kill(pid_, signal_number) == 0); }

bool Job::saw(std::string_view text, int times) {
  const auto deadline = Clock::now() + patience;
  while (count(out_, text) + count(err_, text) < times) {
    if (!read_some(deadline)) return false;
  }
  return true;
}

void Job::catch_up() {
  while (read_some(Clock::now())) {
  }
}

bool Job::read_some(Clock::time_point deadline) {
  std::array<pollfd, 2> wait{pollfd{out_pipe_.get(), POLLIN, 0},
                             pollfd{err_pipe_.get(), POLLIN, 0}};
  if (!out_pipe_ && !err_pipe_) return false;
  if (::poll(wait.data(), wait.size(), poll_timeout_ms(deadline)) <= 0) return false;
  for (std::size_t i = 0; i < wait.size(); ++i) {
    if (wait[i].revents == 0) continue;
    std::array<char, 65536> block;
    const auto size = ::read(wait[i].fd, block.data(), block.size());
    if (size > 0) {
      (i == 0 ? out_ : err_).append(block.data(), static_cast<std::size_t>(size));
    } else {
      (i == 0 ? out_pipe_ : err_pipe_).reset();
    }
  }
  return true;
}

ExitStatus Job::wait() {
  const auto deadline = Clock::now() + patience;
  // Reading on, so that a full pipe holds up nobody.
  const unique_fd end(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  bool gone = false;
  while (!gone && Clock::now() < deadline) {
    std::array<pollfd, 3> events{pollfd{end.get(), POLLIN, 0}, pollfd{out_pipe_.get(), POLLIN, 0},
                                 pollfd{err_pipe_.get(), POLLIN, 0}};
    ::poll(events.data(), events.size(), poll_timeout_ms(deadline));
    gone = events[0].revents != 0;
    if (!gone) read_some(deadline);
  }
  REQUIRE_MESSAGE(gone, "the launcher did not end; stdout: " << out_ << " stderr: " << err_);
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  // Nobody may hold our pipes any longer than the launcher.
  while (read_some(deadline)) {
  }
  CHECK_MESSAGE((!out_pipe_ && !err_pipe_), "somebody outlived the launcher");
  return exit_status_from_wait(status);
}

}  // namespace dlaunch::process_test
