#include "launcher/doctor/host_clock.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch::launcher::doctor {
namespace {

/// Logging in takes a while; after that the host answers at once.
constexpr auto login_patience = std::chrono::seconds(10);
constexpr auto answer_patience = std::chrono::seconds(2);
/// The number of round trips, of which the shortest counts.
constexpr int round_trips = 8;
constexpr std::size_t answer_bytes_max = 256;
/// A shell's line that answers each line it reads with the time.
constexpr const char* clock_line = "while read x; do date +%s.%N; done";

/// A process that reads and writes one end of a socket pair, and ends with this object.
class Talk {
 public:
  explicit Talk(std::vector<std::string> line) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
    end_.reset(ends[0]);
    const unique_fd theirs(ends[1]);
    std::vector<char*> words;
    for (auto& word : line) words.push_back(word.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const int error =
        ::posix_spawnp(&child_, words.front(), &actions, nullptr, words.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) child_ = -1;
  }
  ~Talk() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  bool began() const { return child_ > 0; }
  /// The answer to an empty line, without its end; nullopt where none comes in time.
  std::optional<std::string> ask(Clock::duration patience) const {
    const auto deadline = Clock::now() + patience;
    if (::send(end_.get(), "\n", 1, MSG_NOSIGNAL) != 1) return std::nullopt;
    std::string said;
    std::array<char, answer_bytes_max> block{};
    while (said.size() < answer_bytes_max) {
      pollfd wait{end_.get(), POLLIN, 0};
      const int ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return std::nullopt;
      const auto size = ::read(end_.get(), block.data(), block.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return std::nullopt;
      said.append(block.data(), static_cast<std::size_t>(size));
      if (const auto end = said.find('\n'); end != std::string::npos) return said.substr(0, end);
    }
    return std::nullopt;
  }

 private:
  unique_fd end_;
  pid_t child_ = -1;
};

}  // namespace

HostClock probe_clock(const std::string& host, const std::vector<std::string>& ssh) {
  std::vector<std::string> line = ssh;
  line.push_back(host);
  line.emplace_back(clock_line);
  const Talk talk(std::move(line));
  if (!talk.began())
    return {.host = host, .problem = "there is no program " + in_quotes(ssh.front())};
  std::vector<ClockSample> samples;
  for (int i = 0; i < round_trips; ++i) {
    const auto sent = std::chrono::system_clock::now();
    const auto said = talk.ask(i == 0 ? Clock::duration(login_patience) : answer_patience);
    if (!said) break;
    const auto theirs = time_of(*said);
    if (!theirs) return {.host = host, .problem = "its date does not tell parts of a second"};
    samples.push_back(
        {.sent = sent, .theirs = *theirs, .received = std::chrono::system_clock::now()});
  }
  if (samples.empty()) {
    return {.host = host, .problem = ssh.front() + " does not get there, or not in time"};
  }
  return clock_of(host, samples);
}

}  // namespace dlaunch::launcher::doctor
