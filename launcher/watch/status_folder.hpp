#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The folder in which the agents of this user's live jobs are found: $XDG_RUNTIME_DIR/dlaunch,
/// else /tmp/dlaunch-<uid>; below it <job>/<node>.sock, or <job>/<node>#<number>.sock where another
/// live job has that name. Accessible to its owner alone.
class StatusFolder {
 public:
  /// With `make` it makes missing folders. Throws Error{refused} with a sentence where there is no
  /// such folder, or it is not this user's own.
  explicit StatusFolder(bool make);

  const std::string& path() const { return path_; }

  struct Place {
    std::string job, node;
  };
  /// An agent's own place. `node` may have got a number, so that the place is nobody else's.
  struct Taken {
    Place place;
    unique_fd listener;
    ino_t inode = 0;
  };
  /// All places in the folder, whether or not somebody answers there.
  std::vector<Place> places() const;
  /// Throws Error{unreachable}: nobody listens there any more, and the place has been removed.
  unique_fd connect(const Place& place) const;
  /// Takes a place, replacing one of its name that was left behind, and no other. A process that
  /// finds it can connect.
  Taken listen(const Place& place) const;
  void give_back(const Taken& taken) const noexcept;
  /// Removes the places of killed agents; if there are very many, some of them.
  void remove_dead() const noexcept;

 private:
  Taken listen_once(const Place& place) const;
  void remove(const Place& place) const;
  void remove_if_dead(const Place& place) const;

  std::string path_;
};

/// Removes the places of killed agents, wherever the folder is, if there is one.
void remove_dead_places() noexcept;

}  // namespace dlaunch::launcher
