#include "runtime/base/secret/private_file.hpp"

#include "runtime/base/os/socket.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch {

Error unreadable_secret(std::string_view what, const std::string& where, const std::string& why) {
  return Error(Errc::misuse, "cannot read " + std::string(what) + " from " + where + ": " + why);
}

unique_fd open_private_file(std::string_view what, const std::string& path) {
  // A FIFO without a writer would block.
  unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0)
    throw unreadable_secret(what, path, errno_text(errno));
  if (!S_ISREG(status.st_mode)) {
    throw unreadable_secret(what, path,
                            "it is not a regular file; a pipe is inherited as a descriptor");
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw unreadable_secret(what, path,
                            "it belongs to another user, uid " + std::to_string(status.st_uid));
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw unreadable_secret(what, path,
                            "others than its owner have access to it: chmod 600 " + path +
                                ", and make a new secret if they may have read it");
  }
  return fd;
}

}  // namespace dlaunch
