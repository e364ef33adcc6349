#include "tests/process/by_hand/by_hand_process.hpp"

#include "runtime/base/deadline.hpp"

#include <array>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

namespace {

constexpr auto patience = std::chrono::seconds(30);

std::pair<dlaunch::unique_fd, dlaunch::unique_fd> pipe_pair() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {dlaunch::unique_fd(ends[0]), dlaunch::unique_fd(ends[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Process::Process(const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& environment) {
  auto [child_input, input] = pipe_pair();
  auto [output, child_output] = pipe_pair();
  std::vector<std::string> arguments = command, variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const auto argv = pointers_to(arguments);
  const auto envp = pointers_to(variables);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(child_input.get(), STDIN_FILENO);
    ::dup2(child_output.get(), STDOUT_FILENO);
    ::dup2(child_output.get(), STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  if (pid_ < 0) throw std::runtime_error("fork");
  input_ = std::move(input);
  pipe_ = std::move(output);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      reaped_(other.reaped_),
      input_(std::move(other.input_)),
      pipe_(std::move(other.pipe_)),
      output_(std::move(other.output_)) {}

Process::~Process() {
  if (pid_ < 0 || reaped_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Process::read_some() {
  pollfd wait{pipe_.get(), POLLIN, 0};
  if (::poll(&wait, 1, dlaunch::poll_timeout_ms(dlaunch::deadline_after(patience))) == 0) {
    throw std::runtime_error("a process was silent for too long; it wrote: " + output_);
  }
  std::array<char, 4096> buffer;
  const auto size = ::read(pipe_.get(), buffer.data(), buffer.size());
  if (size <= 0) return false;
  output_.append(buffer.data(), static_cast<std::size_t>(size));
  return true;
}

const std::string& Process::read_until(const std::string& text) {
  while (output_.find(text) == std::string::npos) {
    if (!read_some()) throw std::runtime_error("'" + text + "' never came, but: " + output_);
  }
  return output_;
}

int Process::wait() {
  while (read_some()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
