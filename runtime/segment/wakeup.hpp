#pragma once

#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/segment/segment.hpp"

#include <memory>

namespace dlaunch {

/// Wakes ranks of a node that sleep in poll(2): each has a datagram socket under an abstract name
/// made of the segment's id, its local rank, and which of the rank's bells it is. A futex would not
/// do, since a sleeping rank waits for its connections and for its agent's news at the same time.
/// Ringing costs a system call; it is done only for a rank whose RankBlock says that it sleeps. Any
/// process on the host that knows the random id could ring, too: a rank that was woken for nothing
/// looks, and sleeps again. lie_down and get_up are for one thread at a time, ringing is for any.
class Wakeup {
 public:
  static constexpr int bells_max = 32;

  /// One of this local rank's bells, 0..bells_max-1: each thread that sleeps by itself has its own.
  /// If the name is taken or abstract sockets are forbidden, fd() is -1, and sleepers look again
  /// from time to time instead.
  Wakeup(std::shared_ptr<Segment> segment, int local, int bell);

  /// Readable when somebody rang; -1 if nobody can.
  int fd() const noexcept { return has_name_ ? socket_.get() : -1; }
  /// Takes what was rung.
  void clear() noexcept;
  /// Announces that this rank is about to sleep; whatever it waits for must be looked at once more
  /// after this, and before it sleeps.
  void lie_down() noexcept;
  void get_up() noexcept;
  /// Wakes all sleepers of that rank. The data for them was stored before; sequential consistency
  /// keeps the order of that store and of the look at the sleeper.
  void ring_if_asleep(int local) noexcept;

 private:
  std::shared_ptr<Segment> segment_;
  int local_;
  int bell_;
  unique_fd socket_;
  bool has_name_ = false;  ///< Without one it still rings others.
};

}  // namespace dlaunch
