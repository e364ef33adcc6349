#pragma once

#include "runtime/base/socket.hpp"
#include "runtime/base/unique_fd.hpp"
#include "runtime/segment/segment.hpp"

#include <memory>

namespace dlaunch {

/// Wakes ranks of a node that sleep in poll(2): each has a datagram socket under an abstract name
/// made of the segment's id and its local rank. A futex would not do: a sleeping rank waits for
/// its connections and for its agent's news at the same time. Ringing costs a system call; it is
/// done only for a rank whose RankBlock says that it sleeps. Anyone on the host who knows the
/// random id could ring, too: a rank that was woken for nothing looks and goes to sleep again.
class Doorbell {
 public:
  /// Of this local rank. Where abstract sockets are forbidden fd() is -1, and sleepers look again
  /// from time to time instead.
  Doorbell(std::shared_ptr<Segment> segment, int local);

  /// Readable when somebody rang; -1 if nobody can.
  int fd() const noexcept { return own_.get(); }
  /// Takes what was rung.
  void clear() noexcept;
  /// Announces that this rank is about to sleep; whatever it waits for must be looked at once more
  /// after this, and before it sleeps.
  void lie_down() noexcept;
  void get_up() noexcept;
  /// Wakes that rank if it sleeps. What it should see was stored before; the order of that store
  /// and of the look at the sleeper is kept by sequential consistency.
  void ring_if_asleep(int local) noexcept;

 private:
  std::shared_ptr<Segment> segment_;
  int local_;
  unique_fd own_;
};

}  // namespace dlaunch
