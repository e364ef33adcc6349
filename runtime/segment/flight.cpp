#include "runtime/segment/flight.hpp"

#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/segment/segment.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include <sched.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

/// The text, or its end if it is too long: names differ at their ends.
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

std::uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// A group that was never used, else the one whose communicator ended first; groups_max: none.
std::size_t free_group(const FlightRing& ring) noexcept {
  std::size_t oldest = FlightRing::groups_max;
  for (std::size_t number = 0; number < FlightRing::groups_max; ++number) {
    const auto& group = ring.groups[number];
    if (group.communicator.load(relaxed) == 0) return number;
    // The counts of an ended communicator do not change any more.
    const std::uint64_t ended = group.ended.load(std::memory_order_acquire);
    if (ended == 0) continue;
    if (oldest == FlightRing::groups_max || ended < ring.groups[oldest].ended.load(relaxed)) {
      oldest = number;
    }
  }
  return oldest;
}

/// Null if all are used.
FlightRing::Other* free_other(FlightRing& ring) noexcept {
  const auto used = std::min<std::size_t>(ring.others_used.load(relaxed), FlightRing::others_max);
  for (std::size_t number = 0; number < used; ++number) {
    if (ring.others[number].communicator.load(relaxed) == 0) return &ring.others[number];
  }
  if (used == FlightRing::others_max) return nullptr;
  ring.others_used.store(static_cast<std::uint32_t>(used + 1), std::memory_order_release);
  return &ring.others[used];
}

/// The numbers of a Progress.
struct Counts {
  std::uint64_t begun = 0, rooted = 0, digest = 0;
  std::uint32_t heard = 0;
  std::int32_t size = 0;

  /// Whether ranks may differ in its calls, noticed or not.
  bool may_differ() const { return rooted != 0 || heard != 0; }
};

Counts counts_of(const FlightRing::Progress& progress) noexcept {
  return {progress.begun.load(relaxed), progress.rooted.load(relaxed),
          progress.digest.load(relaxed), progress.heard.load(relaxed), progress.size.load(relaxed)};
}

/// Without a site.
std::uint64_t who_of(std::uint64_t communicator, std::size_t number) noexcept {
  return flight_hash(communicator) << 32 | static_cast<std::uint64_t>(number) << 16 |
         std::uint64_t{0xffff};
}

void store_counts(FlightRing::Progress& to, const Counts& counts) noexcept {
  to.begun.store(counts.begun, relaxed);
  to.rooted.store(counts.rooted, relaxed);
  to.digest.store(counts.digest, relaxed);
  to.heard.store(counts.heard, relaxed);
  to.size.store(counts.size, relaxed);
}

/// Frees a group, or its substitute, for another communicator: a reader of the old one sees, when
/// it looks again, that it is gone.
void vacate(std::atomic<std::uint64_t>& communicator) noexcept {
  communicator.store(0, relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

void fill(FlightRing::Other& other, std::uint64_t communicator, const Counts& counts) noexcept {
  vacate(other.communicator);
  store_counts(other.progress, counts);
  other.communicator.store(communicator, std::memory_order_release);
}

/// Keeps the counts of a group that another communicator is about to take.
void keep_counts(FlightRing& ring, const FlightRing::Group& group) noexcept {
  const std::uint64_t communicator = group.communicator.load(relaxed);
  const Counts counts = counts_of(group.progress);
  if (communicator == 0 || !counts.may_differ()) return;
  if (auto* const other = free_other(ring)) fill(*other, communicator, counts);
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
  ring_->purposes_with_part.store(words.purposes_with_part, relaxed);
  ring_->pid.store(::getpid());
  if (const auto stat = process_stat(::getpid())) ring_->process_started.store(stat->started);
  ring_->ns_then.store(now_ns());
  ring_->ticks_then.store(ticks());
  ring_->ready.store(1);
}

namespace {

/// The threads of this process that record.
enum class Recorders { many, none, one };
constinit std::atomic<Recorders> recorders{Recorders::many};
constinit std::mutex recorders_change;

/// How long a thread may be between two instructions before it is no more waited for.
constexpr auto inside_max = std::chrono::milliseconds(1);

}  // namespace

constinit Bias Flight::favoured_;

void Flight::favour_one_thread() noexcept {
  static std::atomic<bool> was_here{false};
  if (!was_here.exchange(true)) recorders.store(Recorders::none);
}

std::uint64_t Flight::next_number_of_many(std::atomic<std::uint64_t>& begun) noexcept {
  if (recorders.load(std::memory_order_acquire) != Recorders::many) [[unlikely]]
    meet();
  return begun.fetch_add(1, relaxed) + 1;
}

/// This thread records, and is not the favoured one: it is from here on, or nobody is any more.
void Flight::meet() noexcept {
  const std::lock_guard lock(recorders_change);
  if (recorders.load(relaxed) == Recorders::none) {
    favoured_.give();
    recorders.store(Recorders::one, std::memory_order_release);
  } else if (recorders.load(relaxed) == Recorders::one) {
    favoured_.stop();
    const auto until = std::chrono::steady_clock::now() + inside_max;
    while (favoured_.is_inside() && std::chrono::steady_clock::now() < until) ::sched_yield();
    recorders.store(Recorders::many, std::memory_order_release);
  }
}

Flight::Place Flight::join(std::uint64_t communicator, std::string_view name, int rank,
                           int size) noexcept {
  const Adding adding(*ring_);
  const std::size_t number = free_group(*ring_);
  if (number == FlightRing::groups_max) return join_others(communicator, size);
  auto& group = ring_->groups[number];
  keep_counts(*ring_, group);
  vacate(group.communicator);
  store_text(group.name, name);
  group.rank.store(rank, relaxed);
  store_counts(group.progress, {.size = size});
  group.stuck_after_ms.store(0, relaxed);
  group.ended.store(0, relaxed);
  group.communicator.store(communicator, std::memory_order_release);
  return {who_of(communicator, number), &group.progress};
}

/// To be called while no other thread adds. Readers of its records find no group of that number.
Flight::Place Flight::join_others(std::uint64_t communicator, int size) noexcept {
  auto* const other = free_other(*ring_);
  if (other == nullptr) return {who_of(communicator, FlightRing::none), &spare_};
  fill(*other, communicator, {.size = size});
  const auto number = static_cast<std::size_t>(other - ring_->others.data());
  return {who_of(communicator, FlightRing::groups_max + number), &other->progress};
}

void Flight::leave(const Place& place) noexcept {
  const auto number = static_cast<std::uint16_t>(place.who >> 16);
  if (number == FlightRing::none) return;
  if (number >= FlightRing::groups_max) {
    const Adding adding(*ring_);
    auto& other = ring_->others[number - FlightRing::groups_max];
    if (!counts_of(other.progress).may_differ()) vacate(other.communicator);
    return;
  }
  const std::uint64_t ended = ring_->groups_ended.fetch_add(1, relaxed) + 1;
  ring_->groups[number].ended.store(ended, std::memory_order_release);
}

void Flight::limit_waits(const Place& place, std::chrono::milliseconds stuck_after) noexcept {
  const auto number = static_cast<std::uint16_t>(place.who >> 16);
  if (number < FlightRing::groups_max) {
    ring_->groups[number].stuck_after_ms.store(stuck_after.count(), relaxed);
  }
}

/// The number of a site's text, which is added where it is new.
std::uint16_t Flight::add_site(std::string_view text) noexcept {
  const Adding adding(*ring_);
  const std::uint32_t used = ring_->sites_used.load(relaxed);
  std::uint32_t place = 0;
  while (place < used && !has_text(ring_->sites[place], text)) ++place;
  if (place == FlightRing::sites_max) return FlightRing::none;
  if (place == used) {
    store_text(ring_->sites[place], text);
    ring_->sites_used.store(used + 1, std::memory_order_release);
  }
  return static_cast<std::uint16_t>(place);
}

std::uint64_t Flight::new_site(std::uint64_t key, const char* file, int line) noexcept {
  constexpr std::uint64_t others = ~std::uint64_t{0xffff};
  try {
    const std::string text = site_text(file == nullptr ? "" : file, line);
    const std::uint64_t number = text.empty() ? FlightRing::none : add_site(text);
    const std::size_t first = key >> (64 - sites_bits);
    const bool is_free = known_sites_[first].load(relaxed) == 0;
    known_sites_[is_free ? first : first ^ 1].store((key & others) | number, relaxed);
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
    write(wait.call, {entry->number_, entry->who_, entry->began_, 0}, call);
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
