#pragma once

#include "collectives/transport/message/fault_point.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/shm/stores.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/segment/wakeup.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dlaunch::algorithms {
class Table;
}

namespace dlaunch::transport {

/// The behaviour of a member that has waited for a while and may sleep. Implemented by a call,
/// which knows its deadline and hears the news.
class WaitPolicy {
 public:
  virtual ~WaitPolicy() = default;
  /// Sleeps until `ready()`, or until the thread is wanted back; throws what ends the call.
  /// `member` is the one that is waited for.
  virtual void wait_long(int member, const std::function<bool()>& ready) = 0;
  /// Looks once, without sleeping, at what may end the call, and throws it.
  virtual void look_around(int member, const std::function<bool()>& ready) = 0;
  /// `member` is in another call than this one, which has that hash. Throws.
  [[noreturn]] virtual void disagree(int member, std::uint32_t call) = 0;
  /// The arguments of `member` were wrong. Throws.
  [[noreturn]] virtual void disagree_with_refused(int member) = 0;
  /// `member` gives or takes `theirs` bytes where this rank takes or gives `ours`. Throws.
  [[noreturn]] virtual void differ(int member, std::uint64_t theirs, std::uint64_t ours) = 0;
  /// Whether the call is to end at once: looked at while spinning.
  virtual bool is_over() const noexcept = 0;
  /// Gives the thread back if it is wanted; true if that happened and the call goes on, perhaps on
  /// another thread.
  virtual bool gives_thread_back() noexcept = 0;
  /// The table of algorithms.
  virtual const algorithms::Table& table() const = 0;
};

/// The ranks of one communicator that share a segment. They go through the same steps, numbered
/// from 1. In each a member may write its slot and its line's payload, then publishes the step, and
/// others that have seen it published read them:
///
///     open -> write slot() and payload() -> publish -> wait(m) -> read slot_of(m), payload_of(m)
///
/// A member leaves alone what it published with step t until all members have published step t+1,
/// which is how they say that they are done reading t: open() sees to it. So there are two slots,
/// and one step costs one synchronisation, however much it moves. A step that moves only what fits
/// into a line may begin while others are up to `steps_ahead` behind (open_ahead): one that many
/// wait for, as the root of a broadcast, goes on while they are still to come. For this there are
/// twice as many lines: while a member looks at what another published with step t, that one is
/// less than twice `steps_ahead` further.
///
/// A line has one writer; its word is stored last and read first (release, acquire), and nothing
/// else orders the data. The word is the step and a hash of the call that takes it, so that ranks
/// are compared by the look that waits for them. Between publishing and sleeping there are full
/// fences, so that either the sleeper sees the step or the publisher sees the sleeper; where the
/// kernel lets the sleeper execute both, a publisher's store does not wait for the line to come
/// back from its readers. Not thread-safe: for the thread that makes the call.
class ShmGroup {
 public:
  /// The payload beside the word, for which no second line has to be fetched.
  static constexpr std::size_t payload_bytes_max = line_pair_bytes - 8;
  static constexpr std::size_t slot_bytes = 512u << 10;
  /// How many steps a rank may go ahead: about as many as a shared processor makes before it is
  /// another rank's turn.
  static constexpr std::uint64_t steps_ahead = 4;

  /// The leader, the first member, makes this for all: a place in the segment for the others to
  /// join at; nullopt if the leader's arena is full.
  /// `with_remote_barriers` if all members allow them (remote_barrier.hpp).
  static std::optional<std::uint64_t> make_block(Segment& segment, int leader_local, int members,
                                                 bool with_remote_barriers);

  /// `locals` are the members' places on the node, in the members' order.
  ShmGroup(std::shared_ptr<Segment> segment, std::shared_ptr<Wakeup> bell, std::vector<int> locals,
           int rank, std::uint64_t block);
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  Segment& segment() noexcept { return *segment_; }
  Wakeup& bell() noexcept { return *bell_; }

  /// The steps that follow belong to this call. `wait_policy` is borrowed until the next begin.
  void begin(WaitPolicy& wait_policy, const Flight::Call& call) {
    wait_policy_ = &wait_policy;
    call_ = hash_of(call);
    first_ = step_;
  }
  /// A hash of the call. Differing calls of one number agree by chance once in four thousand
  /// million times; among calls of other numbers there may be one that agrees. Every call makes
  /// one, so it is short: both factors fit into their instructions. The second carries differences
  /// from bit 16 on into the upper half; those below are the count's, which the first has spread,
  /// or the number's.
  static std::uint32_t hash_of(const Flight::Call& call) noexcept {
    const std::uint64_t sum =
        call.count * 0x2c1b3c6dU + call.what + (call.argument + call.sequence);
    return static_cast<std::uint32_t>(sum * 0x79b97f4bU >> 32);
  }
  /// Steps since begin.
  std::uint64_t steps() const noexcept { return step_ - first_; }
  /// This member's arguments were wrong: takes the call's first step for it, so that the others
  /// learn of it and the members stay in step.
  void refuse();

  void open() { open_behind(1); }
  /// The same for a step in which this member leaves its slot alone.
  void open_ahead() { open_behind(steps_ahead); }
  std::byte* slot() noexcept { return slot_at(rank_, step_); }
  /// Copies data that does not overlap to a place in slot().
  void put(std::byte* place, const std::byte* data, std::size_t bytes) noexcept {
    copy_for_reader(stores_, place, data, bytes);
  }
  /// Whether readers of the slot are so far that other data, too, should be streamed into it.
  bool streams() const noexcept { return stores_.streams(); }
  std::byte* payload() noexcept { return row_[rank_].payload; }
  void publish() {
    at_step();
    std::atomic<std::uint64_t>& word = row_[rank_].word;
    if (size_ == 1) note_complete();
    std::uint32_t sleepers = 0;
    if (remote_barriers_) [[likely]] {
      // Any load but a relaxed one would wait for the store on AArch64, where it need not: the
      // sleeper's barrier falls before the store, between the two, or after the load.
      word.store(word_, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      sleepers = block_->sleepers.load(std::memory_order_relaxed);
    } else {
      word.store(word_);
      sleepers = block_->sleepers.load();
    }
    if (sleepers != 0) [[unlikely]]
      wake_sleepers();
  }
  /// Once for each other member and step at most.
  void wait(int member) {
    if (row_[member].word.load(std::memory_order_acquire) != word_) [[unlikely]] {
      await(member, step_, call_in(word_));
    }
    if (++waited_ == size_ - 1) note_complete();
  }
  void wait_all();
  const std::byte* slot_of(int member) noexcept { return slot_at(member, step_); }
  /// The slot of the previous step, readable until this step is published.
  const std::byte* earlier_slot_of(int member) noexcept { return slot_at(member, step_ - 1); }
  const std::byte* payload_of(int member) noexcept { return row_[member].payload; }

  WaitPolicy& wait_policy() noexcept { return *wait_policy_; }
  /// Room for a pointer for each member.
  std::span<const std::byte*> inputs() noexcept { return inputs_; }
  /// Room for another one.
  std::byte*& source(int member) noexcept { return sources_[static_cast<std::size_t>(member)]; }
  /// Room for the last choice and its key, from which, with the table, it follows.
  struct Choice {
    std::uint64_t key = ~std::uint64_t{0};
    std::uint8_t chosen = 0;
  };
  Choice& last_choice(bool registered) noexcept { return choices_[registered ? 1 : 0]; }
  /// Forgets the choices, since the table has changed.
  void forget_choices() noexcept { choices_[0] = choices_[1] = {}; }

  /// That member's shm group is destroyed: it will publish no more.
  bool has_left(int member) const noexcept {
    return left_[static_cast<std::size_t>(member)].load() != 0;
  }
  /// The hash of a later call that the member has already begun; 0: none.
  std::uint32_t call_ahead(int member) noexcept;
  /// Announces that this rank is about to sleep. If a look after this does not see a step,
  /// publishing that step rings the bell.
  void lie_down() noexcept;
  /// Around sleeping: a member that publishes meanwhile rings.
  void count_sleeper(bool sleeps) noexcept;

 private:
  struct Line {
    alignas(line_pair_bytes) std::atomic<std::uint64_t> word;
    std::byte payload[payload_bytes_max];
  };
  static_assert(sizeof(Line) == line_pair_bytes);
  struct Block {
    alignas(line_pair_bytes) std::atomic<std::uint32_t> users;
    std::uint32_t with_remote_barriers;
    alignas(line_pair_bytes) std::atomic<std::uint32_t> sleepers;
  };
  /// The places of the parts behind a block.
  struct Places {
    explicit Places(int members);
    std::size_t lines, left, slots, end;
  };

  /// The number of lines. A member opens step s when it has seen step s - steps_ahead of all. So
  /// while it looks at step s - steps_ahead it is at step s - 1 at most, and nobody is more than
  /// steps_ahead beyond that.
  static constexpr std::uint64_t rows = 2 * steps_ahead;
  /// The mark of a call whose arguments were wrong.
  static constexpr std::uint32_t refused_call = 0;

  /// A line's word: the step above the call's hash. Steps modulo 2^32 are enough, since members are
  /// never further apart than `rows`.
  static std::uint64_t word_of(std::uint64_t step, std::uint64_t call) noexcept {
    return step << 32 | call;
  }
  static bool has_come(std::uint64_t word, std::uint64_t step) noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(word >> 32) -
                                     static_cast<std::uint32_t>(step)) >= 0;
  }
  static std::uint32_t call_in(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word);
  }

  Line* row(std::uint64_t step) noexcept {
    return lines_ + step % rows * static_cast<std::size_t>(size_);
  }
  std::byte* slot_at(int member, std::uint64_t step) noexcept {
    return slots_ + (static_cast<std::size_t>(member) * 2 + (step & 1)) * slot_bytes;
  }
  /// Waits until all have published all steps except the last `distance`.
  void open_behind(std::uint64_t distance) {
    at_step();
    const std::uint64_t last = step_++;
    waited_ = 0;
    if (complete_ + distance <= last) [[unlikely]]
      complete(last + 1 - distance);
    row_ = row(step_);
    word_ = word_of(step_, call_);
  }
  /// Whether all have published the last opened step.
  void note_complete() {
    if (complete_ + 1 < step_) [[unlikely]]
      complete(step_ - 1);
    complete_ = step_;
  }
  /// Waits until all have published that step, as this member has. A member that did not have to
  /// wait in it learns only now that it was in another call than the others.
  void complete(std::uint64_t step);
  /// Waits until the member has published that step; throws unless it did so in this call.
  void await(int member, std::uint64_t step, std::uint32_t call);
  void await_word(int member, std::uint64_t step);
  template <class Ready>
  bool spin(const Ready& ready);
  void wake_sleepers() noexcept;

  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Wakeup> bell_;
  std::vector<int> locals_;
  int rank_;
  int size_;
  bool oversubscribed_;
  bool remote_barriers_;
  std::uint64_t offset_;
  Block* block_;
  Line* lines_;
  std::atomic<std::uint32_t>* left_;
  std::byte* slots_;

  StoreChoice stores_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> sources_;
  Choice choices_[2];

  WaitPolicy* wait_policy_ = nullptr;
  std::uint64_t call_ = 0;      ///< Hash of the present call.
  Line* row_ = nullptr;         ///< The members' lines for the present step.
  std::uint64_t step_ = 0;      ///< The last opened step.
  std::uint64_t word_ = 0;      ///< The word of the last opened step.
  std::uint64_t first_ = 0;     ///< Steps before the present call.
  std::uint64_t complete_ = 0;  ///< The last step known to be published by all members.
  int waited_ = 0;              ///< Members waited for in the present step.
};

}  // namespace dlaunch::transport
