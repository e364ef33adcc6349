#include "launcher/process/node_check.hpp"

#include "launcher/process/spawn.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <cerrno>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <paths.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t kept_bytes_max = 4096;

}  // namespace

NodeCheck::NodeCheck(boost::asio::io_context& io, const Setting& setting, Done done)
    : done_(std::move(done)), output_(io), timer_(io) {
  int ends[2] = {-1, -1};
  const unique_fd null(::open(_PATH_DEVNULL, O_RDWR | O_CLOEXEC));
  const bool piped = ::pipe2(ends, O_CLOEXEC) == 0;
  unique_fd ours(ends[0]);
  const unique_fd theirs(ends[1]);
  int error = piped && null ? 0 : errno;
  if (error == 0) {
    std::string shell = _PATH_BSHELL, flag = "-c", command = setting.command;
    char* argv[] = {shell.data(), flag.data(), command.data(), nullptr};
    SpawnRequest request;
    request.path = shell.c_str();
    request.argv = argv;
    request.environ = ::environ;
    request.stdio[0] = null.get();
    request.stdio[1] = request.stdio[2] = theirs.get();
    request.mask = setting.mask;
    const SpawnResult result = spawn(request);
    pid_ = result.pid;
    error = result.error;
  }
  if (pid_ < 0) {
    const std::string problem = "could not be started: " + errno_text(error);
    boost::asio::post(io, [done = std::exchange(done_, nullptr), problem] { done(problem); });
    return;
  }
  set_nonblocking(ours.get(), true);
  output_.assign(ours.release());
  read_when_ready();
  timer_.expires_after(setting.limit);
  timer_.async_wait([this, alive = std::weak_ptr(alive_), limit = setting.limit](auto waited) {
    if (waited || alive.expired() || !done_) return;
    kill();
    read_all();
    finish("did not end within " + duration_text(limit) + last_words());
  });
}

NodeCheck::~NodeCheck() { kill(); }

/// A process that was not reaped still owns its number, and so its group's.
void NodeCheck::kill() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

void NodeCheck::ended(const ExitStatus& status) {
  pid_ = -1;
  if (!done_) return;
  read_all();
  if (status.succeeded()) return finish(std::nullopt);
  finish(end_text(status.code, status.signal, status.core_dumped) + last_words());
}

void NodeCheck::read_when_ready() {
  output_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr(alive_)](auto error) {
                       if (error || alive.expired()) return;
                       read_all();
                       if (output_.is_open()) read_when_ready();
                     });
}

void NodeCheck::read_all() {
  std::array<char, kept_bytes_max> block;
  while (output_.is_open()) {
    const auto size = ::read(output_.native_handle(), block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      boost::system::error_code ignored;
      output_.close(ignored);
      return;
    }
    written_.append(block.data(), static_cast<std::size_t>(size));
    if (written_.size() > kept_bytes_max) written_.erase(0, written_.size() - kept_bytes_max);
  }
}

/// ": no GPU", the last line that is not empty.
std::string NodeCheck::last_words() const {
  const auto end = written_.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const auto begin = written_.find_last_of("\r\n", end);
  const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
  return ": " + clipped(std::string_view(written_).substr(from, end + 1 - from));
}

void NodeCheck::finish(std::optional<std::string> problem) {
  timer_.cancel();
  boost::system::error_code ignored;
  output_.close(ignored);
  if (auto done = std::exchange(done_, nullptr)) done(std::move(problem));
}

}  // namespace dlaunch::launcher
