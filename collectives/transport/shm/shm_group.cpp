#include "collectives/transport/shm/shm_group.hpp"

#include "collectives/transport/message/spin_times.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/relax.hpp"
#include "runtime/segment/remote_barrier.hpp"

#include <dlaunch/error.hpp>

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include <sched.h>

namespace dlaunch::transport {
namespace {

/// Spins before the first yield where ranks share processors: the awaited rank most often needs
/// this processor. (With thirty, calls took up to 1.6 times as long.)
constexpr int crowded_spins = 2;
constexpr int spins_between_looks = 64;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

ShmGroup::Places::Places(int members) {
  const auto n = static_cast<std::size_t>(members);
  lines = sizeof(Block);
  left = lines + rows * n * sizeof(Line);
  slots = round_up(left + n * sizeof(std::atomic<std::uint32_t>), 4096);
  end = slots + n * 2 * slot_bytes;
}

std::optional<std::uint64_t> ShmGroup::make_block(Segment& segment, int leader_local, int members,
                                                  bool with_remote_barriers) {
  const Places places(members);
  const auto offset = segment.allocate(leader_local, places.end);
  if (!offset) return std::nullopt;
  // The slots are not cleared here, so that their writers touch them first.
  std::memset(segment.at(*offset), 0, places.slots);
  auto* block = new (segment.at(*offset)) Block;
  block->users.store(static_cast<std::uint32_t>(members));
  block->sleepers.store(0);
  block->with_remote_barriers = with_remote_barriers ? 1 : 0;
  return offset;
}

ShmGroup::ShmGroup(std::shared_ptr<Segment> segment, std::shared_ptr<Wakeup> bell,
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
  left_ = std::launder(reinterpret_cast<std::atomic<std::uint32_t>*>(base + places.left));
  slots_ = base + places.slots;
  row_ = row(step_);
}

/// Others may still read this member's last step, so the last user frees the block.
ShmGroup::~ShmGroup() {
  left_[rank_].store(1);
  if (block_->sleepers.load() != 0) wake_sleepers();
  block_->users.fetch_sub(1);
  if (rank_ == 0) segment_->free_when_unused(locals_[0], offset_, block_->users);
}

void ShmGroup::refuse() {
  if (steps() > 0) return;
  call_ = refused_call;
  open();
  publish();
}

void ShmGroup::complete(std::uint64_t step) {
  while (complete_ < step) {
    const std::uint64_t next = complete_ + 1;
    const Line* lines = row(next);
    const std::uint64_t mine = lines[rank_].word.load(std::memory_order_relaxed);
    for (int member = 0; member < size_; ++member) {
      if (member == rank_) continue;
      if (lines[member].word.load(std::memory_order_acquire) != mine) {
        await(member, next, call_in(mine));
      }
    }
    complete_ = next;
  }
}

void ShmGroup::wait_all() {
  for (int member = 0; member < size_; ++member) {
    if (member != rank_) wait(member);
  }
}

void ShmGroup::await(int member, std::uint64_t step, std::uint32_t call) {
  const auto& published = row(step)[member].word;
  if (!has_come(published.load(std::memory_order_acquire), step)) await_word(member, step);
  const std::uint32_t theirs = call_in(published.load(std::memory_order_relaxed));
  if (theirs == call || call == refused_call) [[likely]]
    return;
  // Another member's wrong arguments may concern a step that is over here.
  if (theirs == refused_call && step != step_) return;
  if (theirs == refused_call) wait_policy_->disagree_with_refused(member);
  wait_policy_->disagree(member, theirs);
}

void ShmGroup::await_word(int member, std::uint64_t step) {
  const auto& published = row(step)[member].word;
  const auto ready = [&] { return has_come(published.load(std::memory_order_acquire), step); };
  for (int spun = 1; !spin(ready); ++spun) {
    if (oversubscribed_ && spun * spin_time < crowded_spin_time) {
      wait_policy_->look_around(member, ready);
    } else {
      // A sleeper announces itself before its last look.
      wait_policy_->wait_long(member, [&] { return has_come(published.load(), step); });
    }
    if (ready()) return;
  }
}

/// Spins; true as soon as it is ready, false after a while, or if the call is to end. A thread that
/// is wanted back does not spin, but looks whenever the call has it.
template <class Ready>
bool ShmGroup::spin(const Ready& ready) {
  const int spins = oversubscribed_ ? crowded_spins : spins_between_looks;
  if (wait_policy_->gives_thread_back()) {
    if (ready()) return true;
  } else {
    for (int i = 0; i < spins; ++i) {
      relax();
      if (ready()) return true;
    }
  }
  const auto until = Clock::now() + spin_time;
  do {
    if (wait_policy_->gives_thread_back()) {
      if (ready()) return true;
      continue;
    }
    if (oversubscribed_) {
      ::sched_yield();
      if (ready()) return true;
    } else {
      for (int i = 0; i < spins_between_looks; ++i) {
        relax();
        if (ready()) return true;
      }
    }
    if (wait_policy_->is_over()) break;
  } while (Clock::now() < until);
  return false;
}

std::uint32_t ShmGroup::call_ahead(int member) noexcept {
  const std::uint64_t next = step_ + 1;
  const std::uint64_t word = row(next)[member].word.load(std::memory_order_acquire);
  return member != rank_ && has_come(word, next) ? call_in(word) : 0;
}

void ShmGroup::lie_down() noexcept {
  bell_->lie_down();
  if (remote_barriers_) remote_barrier();
}

void ShmGroup::count_sleeper(bool sleeps) noexcept {
  if (sleeps) {
    block_->sleepers.fetch_add(1);
  } else {
    block_->sleepers.fetch_sub(1);
  }
}

void ShmGroup::wake_sleepers() noexcept {
  for (int member = 0; member < size_; ++member) {
    if (member != rank_) bell_->ring_if_asleep(locals_[static_cast<std::size_t>(member)]);
  }
}

}  // namespace dlaunch::transport
