#include "runtime/segment/flight.hpp"

#include "runtime/base/process_stat.hpp"
#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include <sched.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

/// The end of it, where it is too long: that is where names differ.
template <std::size_t Size>
void store_text(std::array<std::atomic<char>, Size>& to, std::string_view text) noexcept {
  if (text.size() > Size) text.remove_prefix(text.size() - Size);
  for (std::size_t i = 0; i < Size; ++i) to[i].store(i < text.size() ? text[i] : '\0', relaxed);
}

template <std::size_t Size>
bool has_text(const std::array<std::atomic<char>, Size>& stored, std::string_view text) noexcept {
  if (text.size() > Size) text.remove_prefix(text.size() - Size);
  for (std::size_t i = 0; i < Size; ++i) {
    if (stored[i].load(relaxed) != (i < text.size() ? text[i] : '\0')) return false;
  }
  return true;
}

template <class Words>
void store_words(Words& to, std::span<const char* const> names) noexcept {
  for (std::size_t i = 0; i < std::min(to.size(), names.size()); ++i) {
    if (names[i] != nullptr) store_text(to[i], names[i]);
  }
}

/// While it lives, no other thread of the process adds a text. Held for moments, and seldom.
class Adding {
 public:
  explicit Adding(FlightRing& ring) noexcept : ring_(ring) {
    while (ring_.writing.exchange(1) != 0) ::sched_yield();
  }
  Adding(const Adding&) = delete;
  Adding& operator=(const Adding&) = delete;
  ~Adding() { ring_.writing.store(0); }

 private:
  FlightRing& ring_;
};

/// "train.cpp:42": a path's end says enough.
std::string site_text(std::string_view file, int line) {
  const auto slash = file.rfind('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(line);
}

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// One that nobody has had yet, else the one whose communicator ended first; groups_max: none.
std::size_t free_group(const FlightRing& ring) noexcept {
  std::size_t oldest = FlightRing::groups_max;
  for (std::size_t number = 0; number < FlightRing::groups_max; ++number) {
    const auto& group = ring.groups[number];
    if (group.communicator.load(relaxed) == 0) return number;
    const std::uint64_t ended = group.ended.load(relaxed);
    if (ended == 0) continue;
    if (oldest == FlightRing::groups_max || ended < ring.groups[oldest].ended.load(relaxed)) {
      oldest = number;
    }
  }
  return oldest;
}

}  // namespace

std::uint64_t flight_hash(std::uint64_t communicator) noexcept {
  return (communicator ^ communicator >> 32) & 0xffffffff;
}

Flight::Flight(std::shared_ptr<Segment> segment, int local, const FlightWords& words)
    : segment_(std::move(segment)),
      own_(segment_ ? nullptr : std::make_unique<FlightRing>()),
      ring_(segment_ ? &segment_->flight(local) : own_.get()) {
  if (ring_->ready.load() != 0) return;  // Another mesh of this rank was first.
  store_words(ring_->ops, words.ops);
  store_words(ring_->dtypes, words.dtypes);
  store_words(ring_->reductions, words.reductions);
  store_words(ring_->owners, words.owners);
  store_words(ring_->purposes, words.purposes);
  ring_->pid.store(::getpid());
  if (const auto stat = process_stat(::getpid())) ring_->process_started.store(stat->started);
  ring_->ns_then.store(now_ns());
  ring_->ticks_then.store(ticks());
  ring_->ready.store(1);
}

Flight::Place Flight::join(std::uint64_t communicator, std::string_view name, int rank,
                           int size) noexcept {
  const Adding adding(*ring_);
  const std::size_t number = free_group(*ring_);
  Place place;
  place.who = flight_hash(communicator) << 32 | std::uint64_t{0xffff};
  place.progress = &spare_;
  if (number == FlightRing::groups_max) {
    place.who |= std::uint64_t{FlightRing::none} << 16;
    return place;
  }
  auto& group = ring_->groups[number];
  // A reader of the group before sees, when it looks again, that it has gone.
  group.communicator.store(0, relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  store_text(group.name, name);
  group.rank.store(rank, relaxed);
  group.size.store(size, relaxed);
  group.progress.begun.store(0, relaxed);
  group.progress.rooted.store(0, relaxed);
  group.progress.digest.store(0, relaxed);
  group.progress.heard.store(0, relaxed);
  group.stuck_after_ms.store(0, relaxed);
  group.ended.store(0, relaxed);
  group.communicator.store(communicator, std::memory_order_release);
  place.who |= static_cast<std::uint64_t>(number) << 16;
  place.progress = &group.progress;
  return place;
}

void Flight::leave(const Place& place) noexcept {
  const auto number = static_cast<std::uint16_t>(place.who >> 16);
  if (number >= FlightRing::groups_max) return;
  const std::uint64_t ended = ring_->groups_ended.fetch_add(1, relaxed) + 1;
  ring_->groups[number].ended.store(ended, std::memory_order_release);
}

void Flight::limit_waits(const Place& place, std::chrono::milliseconds stuck_after) noexcept {
  const auto number = static_cast<std::uint16_t>(place.who >> 16);
  if (number < FlightRing::groups_max) {
    ring_->groups[number].stuck_after_ms.store(stuck_after.count(), relaxed);
  }
}

std::uint64_t Flight::new_site(std::uint64_t key, const char* file, int line) noexcept {
  constexpr std::uint64_t others = ~std::uint64_t{0xffff};
  const std::string_view path = file == nullptr ? "" : file;
  if (path.empty()) return others | FlightRing::none;
  try {
    const std::string text = site_text(path, line);
    const Adding adding(*ring_);
    const std::uint32_t used = ring_->sites_used.load(relaxed);
    std::uint32_t place = 0;
    while (place < used && !has_text(ring_->sites[place], text)) ++place;
    std::uint64_t number = FlightRing::none;
    if (place < FlightRing::sites_max) {
      number = place;
      if (place == used) {
        store_text(ring_->sites[place], text);
        ring_->sites_used.store(used + 1, std::memory_order_release);
      }
    }
    known_sites_[key >> (64 - sites_bits)].store((key & others) | number, relaxed);
    return others | number;
  } catch (const std::bad_alloc&) {
    return others | FlightRing::none;
  }
}

Flight::Waiting::Waiting(Entry* entry, const Call& call, int whom) noexcept {
  if (entry == nullptr) return;
  entry->is_long_ = true;
  for (auto& wait : entry->ring_.waits) {
    std::uint32_t free = 0;
    if (wait.taken.load(relaxed) != 0 || !wait.taken.compare_exchange_strong(free, 1)) continue;
    wait_ = &wait;
    entry->write(wait.call, call);
    wait.whom.store(whom, std::memory_order_release);
    wait.since.store(ticks(), std::memory_order_release);
    wait.turn.store(entry->ring_.turns.fetch_add(1, relaxed) + 1, std::memory_order_release);
    return;
  }
}

Flight::Waiting::~Waiting() {
  if (wait_ == nullptr) return;
  wait_->turn.store(0);
  wait_->taken.store(0);
}

}  // namespace dlaunch
