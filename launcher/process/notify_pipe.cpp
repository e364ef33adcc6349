#include "launcher/process/notify_pipe.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/base/text/values.hpp"

#include <dlaunch/error.hpp>

#include <cerrno>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr mode_t owner_only = 0600;
constexpr std::size_t line_bytes_max = 256;

}  // namespace

std::optional<WorkerNotice> read_notice(std::string_view line) {
  while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
  if (line == "progress") return ProgressMade{};
  constexpr std::string_view extend = "extend ";
  if (!line.starts_with(extend)) return std::nullopt;
  const auto time = parse_duration(line.substr(extend.size()));
  if (!time) return std::nullopt;
  return TimeWanted{*time};
}

void NoticeLines::feed(std::string_view bytes,
                       const std::function<void(std::string_view line)>& take) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    begun_.append(part.substr(0, line_bytes_max - begun_.size()));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (const auto line = std::exchange(begun_, {}); !line.empty()) take(line);
  }
}

NotifyPipe::NotifyPipe(boost::asio::io_context& io, std::string path, Heard heard)
    : path_(std::move(path)), heard_(std::move(heard)), pipe_(io) {
  const auto refuse = [this] {
    throw Error(Errc::refused, "cannot make the pipe " + path_ + ": " + errno_text(errno));
  };
  if (::mkfifo(path_.c_str(), owner_only) != 0) refuse();
  ::chmod(path_.c_str(), owner_only);  // A umask may take the owner's rights, too.
  // Opened for writing, too, so that no end is read when the last writer has closed it.
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    ::unlink(path_.c_str());
    errno = error;
    refuse();
  }
  pipe_.assign(fd);
  read();
}

NotifyPipe::~NotifyPipe() { ::unlink(path_.c_str()); }

void NotifyPipe::read() {
  pipe_.async_read_some(boost::asio::buffer(block_), [this](auto error, std::size_t size) {
    if (error) return;
    lines_.feed({block_.data(), size}, [this](std::string_view line) { take(line); });
    read();
  });
}

void NotifyPipe::take(std::string_view line) const {
  const auto notice = read_notice(line);
  if (!notice) return heard_.other(line);
  if (std::holds_alternative<ProgressMade>(*notice)) return heard_.progress();
  heard_.time_wanted(std::get<TimeWanted>(*notice).time);
}

}  // namespace dlaunch::launcher
