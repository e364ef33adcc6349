#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/secret/private_file.hpp"
#include "runtime/base/secret/secrets.hpp"

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
  return unreadable_secret("the secret", where, why);
}

std::vector<Secret> read_to_end(int fd, const std::string& where, Clock::time_point deadline) {
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
  return parse_secrets(BytesView(content.bytes).first(content.size), where);
}

/// systemd sees to who may read a credential.
unique_fd open_credential(const std::string& path) {
  unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) throw unreadable(path, errno_text(errno));
  if (!S_ISREG(status.st_mode)) throw unreadable(path, "it is not a regular file");
  return fd;
}

}  // namespace

std::vector<Secret> read_secrets_file(const std::string& path) {
  return read_to_end(open_private_file("the secret", path).get(), path, Clock::time_point::max());
}

std::vector<Secret> read_secrets_credential(const std::string& name, const char* directory) {
  if (directory == nullptr) {
    throw unreadable("the credential " + in_quotes(name),
                     "CREDENTIALS_DIRECTORY is not set; systemd sets it for a service with "
                     "LoadCredential=" +
                         name + ":FILE");
  }
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
    throw unreadable("the credential " + in_quotes(name), "that is no name of a credential");
  }
  const std::string path = (std::filesystem::path(directory) / name).string();
  return read_to_end(open_credential(path).get(), path, Clock::time_point::max());
}

Secret read_secret_descriptor(int fd, Clock::time_point deadline) {
  const std::string where = "descriptor " + std::to_string(fd);
  if (fd < 3) throw unreadable(where, "it is one of the standard ones");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) throw unreadable(where, errno_text(errno));
  const unique_fd owned(fd);
  return read_to_end(owned.get(), where, deadline).front();
}

Secret read_secret_file(const std::string& path) { return read_secrets_file(path).front(); }

Secret read_secret_credential(const std::string& name, const char* directory) {
  return read_secrets_credential(name, directory).front();
}

}  // namespace dlaunch
