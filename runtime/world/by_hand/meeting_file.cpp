#include "runtime/world/by_hand/meeting_file.hpp"

#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <sstream>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr std::string_view title = "dlaunch meeting 1";
constexpr std::size_t file_bytes_max = 4096;

template <class T>
bool read_number(std::string_view text, T& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

Error file_error(const std::string& doing, const std::string& path, int error) {
  return Error(Errc::unreachable,
               doing + " the meeting file " + in_quotes(path) + ": " + errno_text(error));
}

/// Gives the temporary file its name in one step, on NFS as well. If two ranks 0 start at once,
/// both find no file; link(2), which replaces nothing, lets only one of them win.
void place_file(const std::string& path, const std::string& temporary, bool replace) {
  if (!replace) {
    const int rc = ::link(temporary.c_str(), path.c_str());
    const int error = errno;
    if (rc == 0 || error == EEXIST) {
      ::unlink(temporary.c_str());
      if (rc != 0) throw file_error("writing", path, error);
      return;
    }
    // Some file systems know no links; rename is the next best.
  }
  if (::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  ::unlink(temporary.c_str());
  throw file_error("writing", path, error);
}

std::string write_temporary(const std::string& path, const MeetingRecord& meeting) {
  const std::string temporary = path + "." + meeting.nonce;
  const unique_fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string text = to_text(meeting);
  if (!fd) throw file_error("writing", path, errno);
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw file_error("writing", path, error);
  }
  return temporary;
}

}  // namespace

std::string to_text(const MeetingRecord& meeting) {
  std::ostringstream text;
  text << title << "\nhost " << meeting.host << "\nport " << meeting.port << "\nnonce "
       << meeting.nonce << "\nhostname " << meeting.hostname << "\npid " << meeting.pid
       << "\nmachine " << meeting.machine << "\nstarted " << meeting.started << "\n";
  return text.str();
}

std::optional<MeetingRecord> meeting_from(std::string_view text) {
  MeetingRecord meeting;
  const auto line = [&]() -> std::optional<std::string_view> {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view found = text.substr(0, end);
    text.remove_prefix(end + 1);
    return found;
  };
  const auto field = [&](std::string_view name) {
    const auto found = line();
    if (!found || !found->starts_with(name) || found->size() <= name.size() ||
        (*found)[name.size()] != ' ') {
      return std::string_view{};
    }
    return found->substr(name.size() + 1);
  };
  if (line() != title) return std::nullopt;
  meeting.host = field("host");
  const bool port = read_number(field("port"), meeting.port);
  meeting.nonce = field("nonce");
  meeting.hostname = field("hostname");
  const bool pid = read_number(field("pid"), meeting.pid);
  meeting.machine = field("machine");
  const bool started = read_number(field("started"), meeting.started);
  if (!port || !pid || !started || meeting.host.empty() || meeting.nonce.empty() ||
      meeting.port < 1 || meeting.port > 65535 || !text.empty()) {
    return std::nullopt;
  }
  return meeting;
}

MeetingRecord meeting_of_this_process() {
  MeetingRecord meeting;
  meeting.nonce = random_hex(32);
  meeting.hostname = own_hostname();
  meeting.pid = ::getpid();
  meeting.machine = machine_id();
  meeting.started = start_time_of(meeting.pid).value_or(0);
  return meeting;
}

bool is_known_gone(const MeetingRecord& meeting) {
  if (meeting.machine.empty() || meeting.machine != machine_id()) return false;
  const auto started = start_time_of(meeting.pid);
  if (started) return *started != meeting.started;
  // A process that is hidden from us need not be gone.
  return ::kill(static_cast<pid_t>(meeting.pid), 0) == 0 || errno != EPERM;
}

std::optional<MeetingRecord> read_meeting(const std::string& path) {
  const unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    throw file_error("reading", path, errno);
  }
  std::array<char, file_bytes_max> text{};
  const auto size = ::read(fd.get(), text.data(), text.size());
  if (size < 0) throw file_error("reading", path, errno);
  if (size == 0) return std::nullopt;  // Made by mktemp, say; rank 0 has not written it yet.
  const auto meeting = meeting_from({text.data(), static_cast<std::size_t>(size)});
  if (!meeting) {
    throw Error(Errc::misuse, "the meeting file " + in_quotes(path) +
                                  " holds something else: file:// needs a path of its own");
  }
  return meeting;
}

void write_meeting(const std::string& path, const MeetingRecord& meeting) {
  const auto before = read_meeting(path);
  if (before && !is_known_gone(*before) && before->machine == meeting.machine) {
    throw Error(Errc::refused, "the meeting file " + in_quotes(path) + " belongs to pid " +
                                   std::to_string(before->pid) + " on " + before->hostname +
                                   ", which is alive: another rank 0, or another job, uses it");
  }
  struct stat status {};
  const bool replace = ::stat(path.c_str(), &status) == 0;
  place_file(path, write_temporary(path, meeting), replace);
}

void remove_meeting(const std::string& path, const MeetingRecord& meeting) noexcept {
  try {
    if (read_meeting(path) == meeting) ::unlink(path.c_str());
  } catch (const std::exception&) {
    // An unreadable file is not ours to remove; a file left behind is recognised as stale.
  }
}

}  // namespace dlaunch
