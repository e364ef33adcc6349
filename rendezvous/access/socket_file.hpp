#pragma once

#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <string>
#include <utility>

#include <sys/types.h>

namespace dlaunch::rendezvous {

/// The group of this name. Throws Error{misuse} where there is none.
gid_t group_of(const std::string& name);

/// A unix socket at a path, which is removed when this goes.
class SocketFile {
 public:
  /// Binds and listens; the file gets this mode, and the group where one is named. A socket that a
  /// daemon left behind is replaced. Throws Error: refused where one that lives is in the way,
  /// misuse for another kind of file and for an unknown group, unreachable otherwise.
  SocketFile(const std::string& path, mode_t mode, const std::string& group);
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  unique_fd take() { return std::move(listener_); }

 private:
  const std::string path_;
  unique_fd listener_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// The users whom a listening unix socket lets in, by its file. Throws Error.
SocketAccess access_of(int listener);

}  // namespace dlaunch::rendezvous
