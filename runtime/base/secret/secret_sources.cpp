#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"

#include <array>
#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

/// The sources of a secret: never the command line, never the environment, which others can read.
namespace dlaunch {
namespace {

constexpr std::size_t secret_bytes_max = 4096;

/// The text that is read, gone when it was parsed.
struct Content {
  std::array<std::byte, secret_bytes_max + 1> bytes{};
  std::size_t size = 0;
  ~Content() { wipe(bytes); }
};

Error unreadable(const std::string& where, const std::string& why) {
  return Error(Errc::misuse, "cannot read the secret from " + where + ": " + why);
}

Secret read_to_end(int fd, const std::string& where, Clock::time_point deadline) {
  Content content;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    const int count = ::poll(&ready, 1, poll_timeout_ms(deadline));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) {
      throw Error(Errc::timeout, "cannot read the secret from " + where +
                                     ": its other end stays open and says no more");
    }
    const ssize_t n =
        ::read(fd, content.bytes.data() + content.size, content.bytes.size() - content.size);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw unreadable(where, errno_text(errno));
    if (n == 0) break;
    content.size += static_cast<std::size_t>(n);
    if (content.size > secret_bytes_max) {
      throw unreadable(where, "it is longer than " + std::to_string(secret_bytes_max) +
                                  " bytes, so it is no secret");
    }
  }
  return Secret::parse(BytesView(content.bytes).first(content.size), where);
}

struct OpenFile {
  unique_fd fd;
  struct stat status {};
};

OpenFile open_regular(const std::string& path) {
  // A FIFO without a writer would block.
  OpenFile file{unique_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK))};
  if (!file.fd || ::fstat(file.fd.get(), &file.status) != 0) {
    throw unreadable(path, errno_text(errno));
  }
  if (!S_ISREG(file.status.st_mode)) {
    throw unreadable(path, "it is not a regular file; a pipe is inherited as a descriptor");
  }
  return file;
}

}  // namespace

Secret read_secret_file(const std::string& path) {
  const OpenFile file = open_regular(path);
  if (file.status.st_uid != ::geteuid() && file.status.st_uid != 0) {
    throw unreadable(path, "it belongs to another user, uid " + std::to_string(file.status.st_uid));
  }
  if ((file.status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw unreadable(path, "others than its owner have access to it: chmod 600 " + path +
                               ", and make a new secret if they may have read it");
  }
  return read_to_end(file.fd.get(), path, Clock::time_point::max());
}

Secret read_secret_credential(const std::string& name, const char* directory) {
  if (directory == nullptr) {
    throw unreadable("the credential '" + name + "'",
                     "CREDENTIALS_DIRECTORY is not set; systemd sets it for a service with "
                     "LoadCredential=" +
                         name + ":FILE");
  }
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
    throw unreadable("the credential '" + name + "'", "that is no name of a credential");
  }
  const std::string path = (std::filesystem::path(directory) / name).string();
  return read_to_end(open_regular(path).fd.get(), path, Clock::time_point::max());
}

Secret read_secret_descriptor(int fd, Clock::time_point deadline) {
  const std::string where = "descriptor " + std::to_string(fd);
  if (fd < 3) throw unreadable(where, "it is one of the standard ones");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) throw unreadable(where, errno_text(errno));
  const unique_fd owned(fd);
  return read_to_end(owned.get(), where, deadline);
}

}  // namespace dlaunch
