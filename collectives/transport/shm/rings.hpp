#pragma once

#include "collectives/transport/message/by_rank.hpp"
#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/shm/ring_channel.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/segment/wakeup.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace dlaunch::transport {

/// What a rank does with the rings of its node: it reads those in which others write to it, and
/// makes the writing ends of those to others. Writers outlive it. Not thread-safe.
class Rings {
 public:
  /// `local` is this rank's place in the segment, `size` that of the world. Nobody used this set
  /// before.
  Rings(std::shared_ptr<Segment> segment, std::shared_ptr<Wakeup> bell, std::size_t set, int local,
        int size);
  /// A rank that writes to this one, or waits for room, learns that nobody reads any more.
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  /// Whether that rank may have the same segment, and whether it certainly has.
  bool may_reach(int world_rank) const { return segment_->local_of(world_rank) >= 0; }
  bool reaches(int world_rank) const {
    const int other = segment_->local_of(world_rank);
    return other >= 0 && segment_->rank(other).attached.load() != 0;
  }
  bool oversubscribed() const { return segment_->oversubscribed(); }
  std::unique_ptr<RingWriter> writer_to(int world_rank);
  /// Null as long as that rank has not written.
  RingReader* from(int world_rank) const { return readers_.find(world_rank); }

  /// Takes in what has come from all of them. Returns whether anything moved.
  bool pump(Inbox& inbox, const OnControl& on_control);

 private:
  void find_writers();

  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Wakeup> bell_;
  std::size_t set_;
  int local_;
  int size_;
  std::vector<std::uint64_t> known_writers_;  ///< As in RankBlock.
  ByRank<RingReader> readers_;
};

}  // namespace dlaunch::transport
