#include "runtime/base/os/peer_user.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>
#include <sys/stat.h>

namespace dlaunch {

std::string PeerUser::to_string() const {
  return "uid " + std::to_string(uid) + " (pid " + std::to_string(pid) + ")";
}

std::optional<PeerUser> peer_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid == static_cast<uid_t>(-1)) {
    return std::nullopt;
  }
  PeerUser user{.uid = peer.uid, .groups = {peer.gid}, .pid = peer.pid};
  // If the buffer is too small, the kernel says how many groups there are.
  std::vector<gid_t> others;
  for (size = 0; ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, others.data(), &size) != 0;) {
    if (errno != ERANGE || size <= others.size() * sizeof(gid_t)) return user;
    others.resize(size / sizeof(gid_t));
  }
  others.resize(size / sizeof(gid_t));
  user.groups.insert(user.groups.end(), others.begin(), others.end());
  return user;
}

bool SocketAccess::admits(const PeerUser& user) const {
  if (user.uid == 0 || user.uid == own || (mode & S_IWOTH) != 0) return true;
  return (mode & S_IWGRP) != 0 && std::ranges::find(user.groups, group) != user.groups.end();
}

}  // namespace dlaunch
