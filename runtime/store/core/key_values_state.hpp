#pragma once

#include "runtime/store/core/aggregates.hpp"
#include "runtime/store/core/change_log.hpp"
#include "runtime/store/core/key_map.hpp"
#include "runtime/store/core/key_values.hpp"
#include "runtime/store/core/leases.hpp"
#include "runtime/store/core/losses.hpp"
#include "runtime/store/core/waits.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// The inside of KeyValues, for the files that implement it and nobody else.
namespace dlaunch::store {

/// The leased keys that are removed at once; other jobs have their turn before more are.
constexpr std::size_t leases_at_once = 1024;

inline void answer(Effects& out, Caller to, Answer what) {
  out.push_back({to, std::move(what), true});
}
inline void refuse(Effects& out, Caller to, std::string reason) {
  answer(out, to, Refused{std::move(reason)});
}

struct KeyValues::State {
  struct Entry {
    Bytes value;
    std::uint64_t owner = 0;  ///< The client that leases it; 0: nobody.
  };

  explicit State(const Limits& l)
      : limits(l), barriers(l.gathered_bytes, l.memory), gathers(l.gathered_bytes, l.memory) {}

  using Map = KeyMap<Entry>;

  Limits limits;
  ChangeLog* log = nullptr;  ///< Null: nobody wants to hear of changes.
  Map map;
  ByName<std::deque<Bytes>> queues;
  Waits waits;
  Leases leases;
  Aggregates barriers, gathers;
  Losses losses;
  /// Waits for many keys, of which the one that they listened to has come: there are many names to
  /// look at, so they are looked at a few in each tick.
  std::deque<Waits::Id> woken;
  bool changes = false;    ///< A key is being changed, and not all that watch it are answered.
  std::size_t queued = 0;  ///< Entries of all queues.
  MemoryCharge charge{limits.memory};
  std::size_t bytes = 0;  ///< Keys, values and queues; the aggregates count their own.
  /// Bytes that are erased but still shown by the effects of the current call.
  std::deque<Bytes> kept;

  /// A copy that lives as long as the effects of the current call.
  std::string_view keep(std::string_view name) {
    const BytesView raw = as_bytes(name);
    return as_text(kept.emplace_back(raw.begin(), raw.end()));
  }
  bool exists(std::string_view key) const {
    return map.contains(key) || (!queues.empty() && queues.contains(key));
  }
  std::size_t total_bytes() const {
    return bytes + barriers.bytes() + gathers.bytes() + waits.bytes() + losses.bytes();
  }
  /// About how much memory all of it takes: a short key takes more than its bytes.
  std::size_t held_bytes() const;
  /// Why `limits.memory` has no room for so many more bytes; empty if it has.
  std::string memory_objection(std::size_t more) const;

  /// Why `key`, found or not found at `at`, cannot hold so many bytes; empty if it can.
  std::string objection(Map::iterator at, std::string_view key, std::size_t value_bytes) const;
  /// Why so many bytes cannot be stored in place of `replaced` bytes.
  std::string objection(std::string_view key, std::size_t value_bytes, std::size_t replaced) const;
  std::string objection_to_keys(std::span<const std::string_view> keys) const;
  /// Whether there is room for this wait; if not, it is refused.
  bool may_wait(const PendingWait& wait, Effects& out) const;

  /// Stores without an answer and without a check of limits; `at` is where `key` was looked up.
  Entry& put(Map::iterator at, std::string_view key, BytesView value, Effects& out);
  /// To be called after a value was replaced or created; `before` is the value that watchers saw
  /// last.
  void changed(Map::iterator entry, bool created, std::optional<BytesView> before, Effects& out);
  /// One block for so many readers of this value; null if each gets a copy.
  std::shared_ptr<const Bytes> block_for(std::size_t readers, const Bytes& value) const;
  void unlease(std::string_view key, Entry& entry);
  bool remove(std::string_view key, Effects& out);
  void wake(std::string_view key, const Entry& entry, Effects& out);
  void one_of_keys_came(Waits::Id id, Effects& out);
  /// Looks at so many names of the wait. Answers it if all exist, or makes it listen to the first
  /// absent one. Returns how many names it has looked at.
  std::size_t look_at(Waits::Id id, std::size_t names, Effects& out);
  void aggregate(PendingWait::Kind kind, Caller by, const Aggregates::Contribution& what,
                 Clock::time_point deadline, Effects& out);
  /// Whether the wait should have been answered by now.
  bool is_overdue(const PendingWait& wait) const;
  /// The lost contributor for which the open round of this aggregate can never be complete; nullopt
  /// if none is known.
  std::optional<std::string> hopeless(PendingWait::Kind kind, std::string_view name) const;
  /// Looks at so many names of a wait that is over, and answers it when it has seen what is
  /// missing.
  std::size_t time_out(Waits::Id id, std::size_t names, Effects& out);
};

}  // namespace dlaunch::store
