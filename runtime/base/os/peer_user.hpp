#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace dlaunch {

/// The prefix of a unix socket's address where other addresses name hosts.
constexpr std::string_view unix_prefix = "unix:";

/// The process that connected a unix socket, as the kernel remembers it from then.
struct PeerUser {
  uid_t uid = 0;
  std::vector<gid_t> groups;  ///< Its own one first.
  pid_t pid = 0;

  std::string to_string() const;  ///< "uid 1000 (pid 42)".
};

/// Nullopt where `fd` is no connected unix socket.
std::optional<PeerUser> peer_user(int fd);

/// Decides who may use a unix socket: root, our own user, and the users to whom its file is open.
/// Pure.
struct SocketAccess {
  uid_t own = 0;
  gid_t group = 0;  ///< The file's.
  mode_t mode = 0;  ///< The file's.

  bool admits(const PeerUser& user) const;
};

}  // namespace dlaunch
