#include "runtime/base/os/program.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <paths.h>
#include <poll.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch {

namespace {

/// The limit of a configuration, and of the system's files under /etc and /proc.
constexpr std::size_t file_bytes_max = 16u << 20;
/// The time for reading a pipe, as in `--config <(make-config)`.
constexpr auto file_patience = std::chrono::seconds(10);

}  // namespace

std::vector<std::string> read_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

void fill_standard_descriptors(bool prints) {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) == 0) continue;
    // Takes the lowest free number.
    ::open(_PATH_DEVNULL, prints && fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
  }
}

std::vector<int> ignored_signals() {
  std::vector<int> ignored;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
      ignored.push_back(number);
    }
  }
  return ignored;
}

void hold_signal(int number, bool held) {
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, number);
  ::pthread_sigmask(held ? SIG_BLOCK : SIG_UNBLOCK, &one, nullptr);
}

std::optional<std::string> read_whole_file(const std::string& path) {
  // Opening a FIFO that nobody writes to would block, and reading it would find an end.
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return std::nullopt;
  const auto deadline = Clock::now() + file_patience;
  std::string text;
  std::array<char, 16u << 10> block;
  while (text.size() <= file_bytes_max) {
    pollfd ready{file.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, poll_timeout_ms(deadline));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ETIME;
    if (count <= 0) return std::nullopt;
    const auto size = ::read(file.get(), block.data(), block.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size < 0) return std::nullopt;  // It may be a folder.
    if (size == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(size));
  }
  errno = EFBIG;
  return std::nullopt;
}

int say_and_exit_with(int code, std::string_view text) {
  const int fd = code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  while (!text.empty()) {
    const auto size = ::write(fd, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const std::string sentence = std::string(program_invocation_short_name) +
                                   ": cannot write: " + errno_text(errno) + "\n";
      // If stderr is full, too, the code alone tells.
      [[maybe_unused]] const auto said = ::write(STDERR_FILENO, sentence.data(), sentence.size());
      return exit_code::internal;
    }
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return code;
}

}  // namespace dlaunch
