#include "collectives/transport/shm/rings.hpp"

#include <bit>
#include <utility>

namespace dlaunch::transport {

Rings::Rings(std::shared_ptr<Segment> segment, std::shared_ptr<Wakeup> bell, std::size_t set,
             int local, int size)
    : segment_(std::move(segment)),
      bell_(std::move(bell)),
      set_(set),
      local_(local),
      size_(size),
      known_writers_((static_cast<std::size_t>(segment_->size()) + 63) / 64) {}

Rings::~Rings() {
  segment_->rank(local_).readers[set_].ended.store(1);
  for (int other = 0; other < segment_->size(); ++other) {
    if (other != local_) bell_->ring_if_asleep(other);
  }
}

std::unique_ptr<RingWriter> Rings::writer_to(int world_rank) {
  return std::make_unique<RingWriter>(*segment_, *bell_, set_, segment_->local_of(world_rank),
                                      local_);
}

/// The bits come from other processes.
void Rings::find_writers() {
  const auto& writers = segment_->rank(local_).readers[set_].writers;
  for (std::size_t word = 0; word < known_writers_.size(); ++word) {
    const std::uint64_t now = writers[word].load();
    std::uint64_t fresh = now & ~known_writers_[word];
    known_writers_[word] = now;
    for (; fresh != 0; fresh &= fresh - 1) {
      const int from = static_cast<int>(word) * 64 + std::countr_zero(fresh);
      if (from >= segment_->size() || from == local_) continue;
      const int rank = segment_->world_rank(from);
      if (rank < 0 || rank >= size_) continue;
      readers_.get(rank, *segment_, *bell_, set_, local_, from, rank);
    }
  }
}

bool Rings::pump(Inbox& inbox, const OnControl& on_control) {
  find_writers();
  bool moved = false;
  for (const auto& [rank, reader] : readers_) moved = reader->pump(inbox, on_control) || moved;
  return moved;
}

}  // namespace dlaunch::transport
