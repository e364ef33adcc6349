#include "rendezvous/daemon/log.hpp"

#include <array>
#include <cerrno>
#include <ctime>

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

namespace {

/// Within PIPE_BUF, so that a line is written whole and poll(2) can tell that it will be.
constexpr std::size_t line_bytes_max = 2048;

struct LevelText {
  int priority;  ///< As syslog(3) counts.
  std::string_view name;
};

LevelText text_of(LogLine::Level level) {
  switch (level) {
    case LogLine::Level::debug:
      return {7, "debug"};
    case LogLine::Level::info:
      return {6, "info"};
    case LogLine::Level::warning:
      return {4, "warning"};
    case LogLine::Level::error:
      return {3, "error"};
  }
  return {6, "info"};
}

/// Names come from outside: nothing in them may begin a line or speak to a terminal.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string utc_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text.data(), now.tv_nsec / 1'000'000);
}

}  // namespace

void Log::write(const LogLine& line) {
  if (line.level < least_) return;
  if (dropped_ > 0) {
    const LogLine lost{LogLine::Level::warning, "",
                       std::to_string(dropped_) + " log lines were lost: nobody read them"};
    if (put(lost)) dropped_ = 0;
  }
  if (!put(line)) ++dropped_;
}

bool Log::put(const LogLine& line) {
  pollfd writable{fd_, POLLOUT, 0};
  if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return false;
  const auto [priority, name] = text_of(line.level);
  std::string text = form_ == Form::journal ? fmt::format("<{}>", priority)
                                            : fmt::format("{} dlaunchd: {}: ", utc_now(), name);
  if (!line.job.empty()) text += "job '" + printable(line.job) + "': ";
  text += printable(line.sentence);
  if (text.size() >= line_bytes_max) text = text.substr(0, line_bytes_max - 4) + "...";
  text += '\n';
  ssize_t size = 0;
  do {
    size = ::write(fd_, text.data(), text.size());
  } while (size < 0 && errno == EINTR);
  return size >= 0;
}

bool is_journal(int fd, std::string_view journal_stream) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return false;
  return journal_stream == fmt::format("{}:{}", status.st_dev, status.st_ino);
}

}  // namespace dlaunch::rendezvous
