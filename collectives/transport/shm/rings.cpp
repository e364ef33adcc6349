#include "collectives/transport/shm/rings.hpp"

#include "collectives/transport/message/send_queue.hpp"
#include "runtime/segment/remote_barrier.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace dlaunch::transport {
namespace {

/// What a slow processor needs to copy a byte of lent memory; and the most time for which it pays
/// to stay awake for it, against which a sleeper's waking counts no more.
constexpr auto copy_time = std::chrono::nanoseconds(1);
constexpr auto copy_time_max = std::chrono::milliseconds(1);

}  // namespace

Rings::Rings(Setting setting, const Surroundings& mesh)
    : of_(std::move(setting)),
      mesh_(mesh),
      writers_(of_.segment->rank(of_.local).readers[of_.set].writers),
      has_remote_barriers_(of_.segment->rank(of_.local).attached.load() ==
                           RankBlock::with_remote_barriers),
      known_writers_((static_cast<std::size_t>(of_.segment->size()) + 63) / 64) {
  offer_loans(of_.segment->rank(of_.local));
}

Rings::~Rings() {
  of_.segment->rank(of_.local).readers[of_.set].ended.store(1);
  for (int other = 0; other < of_.segment->size(); ++other) {
    if (other == of_.local) continue;
    note_writer(of_.segment->rank(other).readers[of_.set], of_.local);
    of_.bell->ring_if_asleep(other);
  }
}

Transport::Reach Rings::reach(int rank, const std::optional<Location>& location) const {
  const int other = of_.segment->local_of(rank);
  if (other < 0) return Reach::no;
  if (of_.segment->rank(other).attached.load() != 0) return Reach::yes;
  return location && location->segment != of_.segment->id() ? Reach::no : Reach::unknown;
}

std::unique_ptr<SendingEnd> Rings::connect(SendQueue& queue) {
  outs_.push_back(&queue);
  return std::make_unique<RingWriter>(*of_.segment, *of_.bell, of_.set,
                                      of_.segment->local_of(queue.to()), of_.local);
}

Clock::duration Rings::under_way() const noexcept {
  std::size_t bytes = 0;
  for (const SendQueue* queue : outs_) bytes += queue->lent_bytes();
  return std::min<Clock::duration>(bytes * copy_time, copy_time_max);
}

void Rings::lie_down() {
  of_.bell->lie_down();
  if (has_remote_barriers_) remote_barrier();
}

/// Whether one has ended that never wrote. The bits come from other processes.
bool Rings::find_writers() {
  bool one_ended = false;
  for (std::size_t word = 0; word < known_writers_.size(); ++word) {
    const std::uint64_t now = writers_[word].load();
    if (now == known_writers_[word]) [[likely]]
      continue;
    std::uint64_t fresh = now & ~known_writers_[word];
    known_writers_[word] = now;
    for (; fresh != 0; fresh &= fresh - 1) {
      const int from = static_cast<int>(word) * 64 + std::countr_zero(fresh);
      if (from >= of_.segment->size() || from == of_.local) continue;
      const int rank = of_.segment->world_rank(from);
      if (rank < 0 || rank >= of_.size || mesh_.sources.has(rank)) continue;
      RingReader& reader =
          readers_.get(rank, *of_.segment, *of_.bell, of_.set, of_.local, from, rank, is_sending_);
      mesh_.sources.add(rank, reader);
      one_ended = one_ended || reader.ended();
    }
  }
  return one_ended;
}

bool Rings::progress() {
  bool moved = find_writers();
  is_sending_ = std::any_of(outs_.begin(), outs_.end(), [](auto* out) { return out->has_work(); });
  for (const auto& [rank, reader] : readers_) {
    if (reader->needs_pump()) moved = reader->pump(mesh_.inbox, mesh_.on_control) || moved;
  }
  bool has_ended = false;
  for (SendQueue* queue : outs_) {
    if (queue->has_work()) moved = queue->pump() || moved;
    queue->look_for_end();
    has_ended = has_ended || queue->is_broken();
  }
  if (!has_ended) return moved;
  std::erase_if(outs_, [](const SendQueue* queue) { return queue->is_broken(); });
  return true;
}

}  // namespace dlaunch::transport
