#include "rendezvous/access/socket_file.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <cerrno>
#include <vector>

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

constexpr std::size_t group_record_bytes = 64u << 10;

Error failure(const std::string& path, const std::string& what) {
  return Error(Errc::unreachable, "listening on unix:" + path + ": " + what);
}

/// Removes a socket file at which nobody listens any more, which the kernel alone knows: one whose
/// listener has a full queue, or does not let us in, stays.
void remove_old(const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return;  // Binding says what else is wrong.
  if (!S_ISSOCK(file.st_mode)) {
    throw Error(Errc::misuse, "listening on unix:" + path + ": another kind of file is there");
  }
  const Address at = unix_address(path);
  const unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool answers =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) == 0;
  if (!answers && errno == ECONNREFUSED) {
    ::unlink(path.c_str());
    return;
  }
  if (answers || errno == EAGAIN) {
    throw Error(Errc::refused, "listening on unix:" + path + ": another process listens there");
  }
  throw failure(path, "the socket that is there may be in use: " + errno_text(errno));
}

}  // namespace

gid_t group_of(const std::string& name) {
  std::vector<char> buffer(group_record_bytes);
  group entry{};
  group* found = nullptr;
  ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found != nullptr) return found->gr_gid;
  throw Error(Errc::misuse, "there is no group " + in_quotes(name) + " here");
}

SocketFile::SocketFile(const std::string& path, mode_t mode, const std::string& group)
    : path_(path) {
  const gid_t owned_by = group.empty() ? gid_t(-1) : group_of(group);
  remove_old(path);
  // Nobody else may use the socket until it has its group.
  const mode_t before = ::umask(S_IXUSR | S_IRWXG | S_IRWXO);
  try {
    listener_ = listen_unix(path);
  } catch (...) {
    ::umask(before);
    throw;
  }
  ::umask(before);
  struct stat file {};
  if (::stat(path.c_str(), &file) == 0) {
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
  // A unit may forbid its daemon this privileged call.
  const bool given = group.empty() || ::chown(path.c_str(), uid_t(-1), owned_by) == 0;
  if (!given || ::chmod(path.c_str(), mode) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    throw failure(path, (given ? "its mode cannot be set: " : "socket-group cannot be set: ") +
                            errno_text(error));
  }
}

SocketFile::~SocketFile() {
  struct stat file {};
  const bool ours =
      ::stat(path_.c_str(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
  if (ours) ::unlink(path_.c_str());
}

SocketAccess access_of(int listener) {
  const Address at = local_address(listener);
  const auto* un = reinterpret_cast<const sockaddr_un*>(&at.storage);
  struct stat file {};
  SocketAccess access{.own = ::geteuid()};
  // An abstract socket has no file, and is for our own user and root.
  if (un->sun_path[0] == '\0') return access;
  if (::stat(un->sun_path, &file) != 0) throw failure(un->sun_path, errno_text(errno));
  access.group = file.st_gid;
  access.mode = file.st_mode;
  return access;
}

}  // namespace dlaunch::rendezvous
