#include "collectives/transport/team.hpp"

#include "collectives/transport/spin_times.hpp"
#include "collectives/transport/strike.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/relax.hpp"
#include "runtime/segment/remote_barrier.hpp"

#include <dlaunch/error.hpp>

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include <sched.h>

namespace dlaunch::transport {
namespace {

/// Before the first yield, where ranks share processors: it may be only the line that is on its
/// way.
constexpr int crowded_spins = 30;
constexpr int spins_between_looks = 64;

/// A call whose arguments were wrong.
constexpr std::uint32_t refused_call = 0;

/// Never refused_call. Differing calls agree by chance once in four thousand million times. Every
/// call makes one, so it is short.
std::uint32_t hash_of(const Fingerprint& call) noexcept {
  const std::uint64_t kind =
      static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(call.dtype) << 8 |
      static_cast<std::uint64_t>(call.reduce) << 16 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
  const std::uint64_t sum = kind * 0x9e3779b97f4a7c15U + call.sequence * 0xbf58476d1ce4e5b9U +
                            call.count * 0x94d049bb133111ebU + call.argument * 0xd6e8feb86659fd93U +
                            call.compared_traffic() * 0xa0761d6478bd642fU;
  const auto folded = static_cast<std::uint32_t>(sum >> 32);
  return folded == refused_call ? 1 : folded;
}

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

Team::Places::Places(int members) {
  const auto n = static_cast<std::size_t>(members);
  lines = sizeof(Block);
  calls = lines + 2 * n * sizeof(Line);
  left = calls + 2 * n * sizeof(Fingerprint);
  slots = round_up(left + n * sizeof(std::atomic<std::uint32_t>), 4096);
  end = slots + n * 2 * slot_bytes;
}

std::optional<std::uint64_t> Team::make_block(Segment& segment, int leader_local, int members,
                                              bool with_remote_barriers) {
  const Places places(members);
  const auto offset = segment.allocate(leader_local, places.end);
  if (!offset) return std::nullopt;
  // The slots are left to their writers, who touch them first.
  std::memset(segment.at(*offset), 0, places.slots);
  auto* block = new (segment.at(*offset)) Block;
  block->users.store(static_cast<std::uint32_t>(members));
  block->sleepers.store(0);
  block->with_remote_barriers = with_remote_barriers ? 1 : 0;
  return offset;
}

Team::Team(std::shared_ptr<Segment> segment, std::shared_ptr<Doorbell> bell,
           std::vector<int> locals, int rank, std::uint64_t block)
    : segment_(std::move(segment)),
      bell_(std::move(bell)),
      locals_(std::move(locals)),
      rank_(rank),
      size_(static_cast<int>(locals_.size())),
      oversubscribed_(segment_->oversubscribed()),
      offset_(block),
      inputs_(locals_.size()),
      sources_(locals_.size()) {
  const Places places(size_);
  std::byte* base = segment_->at(block);
  block_ = std::launder(reinterpret_cast<Block*>(base));
  remote_barriers_ = block_->with_remote_barriers != 0;
  lines_ = std::launder(reinterpret_cast<Line*>(base + places.lines));
  calls_ = std::launder(reinterpret_cast<Fingerprint*>(base + places.calls));
  left_ = std::launder(reinterpret_cast<std::atomic<std::uint32_t>*>(base + places.left));
  slots_ = base + places.slots;
}

/// Others may still read what this member published last, so the block goes with its last user.
Team::~Team() {
  left_[rank_].store(1);
  if (block_->sleepers.load() != 0) wake_sleepers();
  block_->users.fetch_sub(1);
  if (rank_ == 0) segment_->free_when_unused(locals_[0], offset_, block_->users);
}

void Team::begin(Patience& patience, const Fingerprint& call) {
  patience_ = &patience;
  call_ = hash_of(call);
  fingerprint_ = &call;
  first_ = step_;
}

void Team::refuse() {
  if (steps() > 0) return;
  call_ = refused_call;
  open();
  publish();
}

void Team::open() {
  at_step();
  const std::uint64_t before = step_++;
  waited_ = 0;
  if (complete_ < before) {
    // Who did not have to wait in it learns only now that it was in another call than the others.
    for (int member = 0; member < size_; ++member) {
      if (member == rank_) continue;
      await(member, before);
      if (line(member, before).call != refused_call) compare(member, before, published_);
    }
    complete_ = before;
  }
  if (before == first_) call_of(rank_, step_) = *fingerprint_;
}

void Team::publish() {
  at_step();
  Line& own = line(rank_, step_);
  own.call = published_ = call_;
  if (size_ == 1) complete_ = step_;
  std::uint32_t sleepers = 0;
  if (remote_barriers_) {
    // Any load but a relaxed one would wait for the store on AArch64, where it need not: the
    // sleeper's barrier falls before the store, between the two, or after the load.
    own.step.store(step_, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    sleepers = block_->sleepers.load(std::memory_order_relaxed);
  } else {
    own.step.store(step_);
    sleepers = block_->sleepers.load();
  }
  if (sleepers != 0) [[unlikely]]
    wake_sleepers();
}

void Team::wait_all() {
  for (int member = 0; member < size_; ++member) {
    if (member != rank_) wait(member);
  }
}

void Team::await_long(int member, std::uint64_t step) {
  const auto& published = line(member, step).step;
  const auto ready = [&] { return published.load(std::memory_order_acquire) >= step; };
  const int spins = oversubscribed_ ? crowded_spins : spins_between_looks;
  for (int i = 0; i < spins; ++i) {
    relax();
    if (ready()) return;
  }
  const auto until = Clock::now() + (oversubscribed_ ? yield_time : spin_time);
  do {
    if (oversubscribed_) {
      ::sched_yield();
      if (ready()) return;
    } else {
      for (int i = 0; i < spins_between_looks; ++i) {
        relax();
        if (ready()) return;
      }
    }
    if (patience_->is_over()) break;
  } while (Clock::now() < until);
  // The sleeper announces itself before it looks for the last time.
  patience_->wait_long(member, [&] { return published.load() >= step; });
}

void Team::compare(int member, std::uint64_t step, std::uint32_t call) {
  const std::uint32_t theirs = line(member, step).call;
  if (theirs == call || call == refused_call) [[likely]]
    return;
  if (theirs == refused_call) patience_->disagree(member, nullptr);
  // The step at which the other's call began is not known: it is one of the two that are kept.
  const bool is_here = hash_of(call_of(member, step)) == theirs;
  patience_->disagree(member, &call_of(member, is_here ? step : step + 1));
}

const Fingerprint* Team::call_ahead(int member) noexcept {
  const std::uint64_t next = step_ + 1;
  const Line& theirs = line(member, next);
  if (member == rank_ || theirs.step.load(std::memory_order_acquire) < next) return nullptr;
  const Fingerprint& call = call_of(member, next);
  return theirs.call == hash_of(call) ? &call : nullptr;
}

void Team::lie_down() noexcept {
  bell_->lie_down();
  if (remote_barriers_) remote_barrier();
}

void Team::count_sleeper(bool sleeps) noexcept {
  if (sleeps) {
    block_->sleepers.fetch_add(1);
  } else {
    block_->sleepers.fetch_sub(1);
  }
}

void Team::wake_sleepers() noexcept {
  for (int member = 0; member < size_; ++member) {
    if (member != rank_) bell_->ring_if_asleep(locals_[static_cast<std::size_t>(member)]);
  }
}

}  // namespace dlaunch::transport
