#include "rendezvous/daemon/log.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"

#include <array>
#include <cerrno>
#include <ctime>
#include <new>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::rendezvous {

namespace {

/// Less than PIPE_BUF, so that a line is written whole, and poll(2) tells in advance whether it can
/// be.
constexpr std::size_t line_bytes_max = 2048;

/// JSON may take six bytes for one of a name; this, too, is less than PIPE_BUF.
constexpr std::size_t json_bytes_max = 4000;
/// The most bytes of a job's name. No job has a longer one, but a request for a job may name
/// anything.
constexpr std::size_t job_bytes_max = 256;
/// The bytes of the message for which there is always room.
constexpr std::size_t message_bytes_min = 128;
constexpr std::size_t json_frame_bytes_max = 256;  // Time, level, event and numbers.
static_assert(6 * (job_bytes_max + message_bytes_min) + json_frame_bytes_max < json_bytes_max);

/// The level as syslog(3) counts.
int priority_of(LogLine::Level level) {
  switch (level) {
    case LogLine::Level::debug:
      return 7;
    case LogLine::Level::info:
      return 6;
    case LogLine::Level::warning:
      return 4;
    case LogLine::Level::error:
      return 3;
  }
  return 6;
}

/// Names come from outside: nothing in them may begin a line or speak to a terminal.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_control(c)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
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

/// `bytes_max` is 4 at least.
std::string shortened(std::string text, std::size_t bytes_max) {
  if (text.size() < bytes_max) return text;
  return text.substr(0, bytes_max - 4) + "...";
}

std::string sentence_of(const LogLine& line) {
  std::string text;
  if (!line.job.empty()) {
    text = "job " + in_quotes(printable(shortened(line.job, job_bytes_max))) + ": ";
  }
  return text + printable(line.sentence);
}

std::string json_of(const LogLine& line) {
  using Json = nlohmann::ordered_json;
  Json json = {{"time", utc_now()}, {"program", "dlaunchd"}, {"level", name_of(line.level)}};
  if (!line.job.empty()) json["job"] = shortened(line.job, job_bytes_max);
  if (line.event != LogLine::Event::other) {
    json["event"] = name_of(line.event);
    json["epoch"] = line.epoch;
    json["attempt"] = line.attempt;
  }
  std::string text;
  for (std::size_t bytes_max = line_bytes_max;; bytes_max /= 2) {
    json["message"] = shortened(line.sentence, bytes_max);
    text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() < json_bytes_max || bytes_max <= message_bytes_min) return text;
  }
}

/// The line in the journal's own form: each field is one line, since none of our values has two.
std::string fields_of(const LogLine& line) {
  std::string text =
      fmt::format("SYSLOG_IDENTIFIER=dlaunchd\nPRIORITY={}\nMESSAGE={}\n", priority_of(line.level),
                  shortened(sentence_of(line), line_bytes_max));
  if (!line.job.empty()) {
    text += fmt::format("DLAUNCH_JOB={}\n", printable(shortened(line.job, job_bytes_max)));
  }
  if (line.event != LogLine::Event::other) {
    text += fmt::format("DLAUNCH_EVENT={}\nDLAUNCH_EPOCH={}\nDLAUNCH_ATTEMPT={}\n",
                        name_of(line.event), line.epoch, line.attempt);
  }
  return text;
}

/// A connected socket; empty where nobody listens.
unique_fd connected_to(const std::string& path) {
  unique_fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Address at = unix_address(path);
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0) {
    return fd;
  }
  return unique_fd();
}

}  // namespace

std::string_view name_of(LogLine::Level level) {
  switch (level) {
    case LogLine::Level::debug:
      return "debug";
    case LogLine::Level::info:
      return "info";
    case LogLine::Level::warning:
      return "warning";
    case LogLine::Level::error:
      return "error";
  }
  return "info";
}

std::string_view name_of(LogLine::Event event) {
  switch (event) {
    case LogLine::Event::other:
      return "";
    case LogLine::Event::standing:
      return "standing";
    case LogLine::Event::epoch:
      return "epoch";
    case LogLine::Event::stopping:
      return "stopping";
    case LogLine::Event::lost:
      return "lost";
    case LogLine::Event::evicted:
      return "evicted";
    case LogLine::Event::refused:
      return "refused";
    case LogLine::Event::finished:
      return "finished";
    case LogLine::Event::action:
      return "action";
  }
  return "";
}

void Log::write(const LogLine& line) {
  if (line.level < least_) return;
  try {
    if (dropped_ > 0) {
      const LogLine notice{
          .level = LogLine::Level::warning,
          .job = "",
          .sentence = std::to_string(dropped_) + " log lines were lost: nobody read them"};
      if (put(notice)) dropped_ = 0;
    }
    if (put(line)) return;
  } catch (const std::bad_alloc&) {  // What it was to tell goes on.
  }
  ++dropped_;
  ++lost_;
}

bool Log::put(const LogLine& line) {
  if (form_ == Form::json) return write_to_fd(json_of(line) + "\n");
  std::string head;
  if (!journal_.empty()) {
    const Sent sent = put_to_journal(line);
    if (sent != Sent::nobody) return sent == Sent::yes;
    head = fmt::format("<{}>", priority_of(line.level));
  } else {
    head = fmt::format("{} dlaunchd: {}: ", utc_now(), name_of(line.level));
  }
  return write_to_fd(shortened(head + sentence_of(line), line_bytes_max) + "\n");
}

/// Sends a line to the journal; tries once more, since the journal may have been restarted.
Log::Sent Log::put_to_journal(const LogLine& line) {
  const std::string fields = fields_of(line);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!journal_socket_) journal_socket_ = connected_to(journal_);
    if (!journal_socket_) return Sent::nobody;
    const auto size =
        ::send(journal_socket_.get(), fields.data(), fields.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size >= 0) return Sent::yes;
    if (errno == EAGAIN || errno == ENOBUFS) return Sent::full;
    journal_socket_.reset();
  }
  return Sent::nobody;
}

bool Log::write_to_fd(std::string_view text) const {
  pollfd writable{fd_, POLLOUT, 0};
  if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return false;
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
