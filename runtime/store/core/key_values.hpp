#pragma once

#include <dlaunch/store.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dlaunch::store {

/// A connection and one request on it; both chosen by the shell, opaque here.
struct Caller {
  std::uint64_t client = 0;
  std::uint64_t request = 0;
  bool operator==(const Caller&) const = default;
};

// ---- What a request can be answered with. Views are borrowed until the next call. ----

struct Done {};
struct Number {
  std::int64_t value = 0;
};
struct Found {
  BytesView value;
};
struct Absent {};
struct FoundMany {
  std::vector<std::optional<BytesView>> values;
};
struct KeyList {
  std::vector<std::string> keys;
};
/// compare_set: what the key holds now (nullopt: nothing) and whether `desired` was stored.
struct Compared {
  bool stored = false;
  std::optional<BytesView> current;
};
/// pop without waiting, as c10d wants it: the length before the pop, and the value if there was
/// one.
struct Popped {
  std::int64_t length_before = 0;
  std::optional<Bytes> value;
};
/// all_gather: one immutable block, shared by all that get it: for each contributor in order a u32
/// size (little-endian) and that many bytes.
struct Gathered {
  int count = 0;
  std::shared_ptr<const Bytes> block;
};
struct Changed {
  KeyChange::Kind kind{};
  std::string_view key;
  std::optional<BytesView> before, after;
};
/// A deadline passed: the keys, or the contributors of a barrier, that never came.
struct TimedOut {
  std::vector<std::string> keys;
  std::vector<int> contributors;
};
/// How many of so many of them a message tells; "and 1 more" is never said.
constexpr std::size_t names_told(std::size_t names) { return names == 9 ? 9 : 8; }
struct Refused {
  std::string reason;
  Errc code = Errc::refused;
};

using Answer = std::variant<Done, Number, Found, Absent, FoundMany, KeyList, Compared, Popped,
                            Gathered, Changed, TimedOut, Refused>;

/// The one kind of effect: an answer to send. `last` is false for a watch, which goes on.
struct Effect {
  Caller to;
  Answer answer;
  bool last = true;
};
using Effects = std::vector<Effect>;

/// Limits of one namespace; what exceeds them is refused with a sentence.
struct Limits {
  std::size_t key_bytes = 8u << 10;
  std::size_t value_bytes = 8u << 20;
  std::size_t keys = 1u << 20;
  std::size_t keys_per_request = 128u << 10;
  std::size_t queue_length = 1u << 20;
  std::size_t total_bytes = std::size_t{4} << 30;
  std::size_t waits_per_client = 4096;
  std::size_t gathered_bytes = 15u << 20;  ///< The limit of what one all_gather may hand out.
  int contributors = 1 << 20;
  Clock::duration lease_min = std::chrono::milliseconds(100);
  Clock::duration lease_max = std::chrono::hours(1);
};

/// One namespace of the store: map, counters, queues, leases, waiters, watches, aggregates. Pure:
/// it reads no clock and no socket; `now` comes in, effects come out, appended to `out` in the
/// order in which they are to be sent. Not thread-safe. Every request is answered exactly once,
/// save watches; a request that has to wait is answered by a later call, or by `tick` when its
/// deadline has passed, or never if its client disconnects or cancels.
class KeyValues {
 public:
  explicit KeyValues(Limits limits = {});
  ~KeyValues();
  KeyValues(KeyValues&&) noexcept;
  KeyValues& operator=(KeyValues&&) noexcept;

  void set(Caller by, std::string_view key, BytesView value, Effects& out);  // Done
  /// The key lives until its owner has not renewed for `lease`. Owners are session numbers, which
  /// outlive connections. A plain set of the key ends its lease.
  void set_leased(Caller by, std::string_view key, BytesView value, std::uint64_t owner,
                  Clock::duration lease, Clock::time_point now, Effects& out);  // Done
  void renew(std::uint64_t owner, Clock::time_point now);
  /// The owner says goodbye: its leased keys go at once.
  void end_leases(std::uint64_t owner, Effects& out);
  /// The same for these keys, as far as they are the owner's. Number: how many were.
  void end_leases(Caller by, std::span<const std::string_view> keys, std::uint64_t owner,
                  Effects& out);

  void get(Caller by, std::string_view key, Effects& out);  // Found | Absent
  void multi_get(Caller by, std::span<const std::string_view> keys, Effects& out);  // FoundMany
  void multi_set(Caller by, std::span<const std::string_view> keys,
                 std::span<const BytesView> values, Effects& out);              // Done
  void add(Caller by, std::string_view key, std::int64_t delta, Effects& out);  // Number
  /// expected nullopt: only if absent. With `empty_is_absent` (c10d) an empty expected value also
  /// matches an absent key.
  void compare_set(Caller by, std::string_view key, std::optional<BytesView> expected,
                   BytesView desired, Effects& out, bool empty_is_absent = false);  // Compared
  void append(Caller by, std::string_view key, BytesView tail, Effects& out);  // Number: new size
  void erase(Caller by, std::string_view key, Effects& out);                   // Number: 0 or 1
  void list(Caller by, std::string_view prefix, Effects& out);                 // KeyList
  void count(Caller by, Effects& out);                                         // Number

  /// Waits until all exist (a non-empty queue counts as existing): Done, or TimedOut. No keys:
  /// Done. A push to a queue wakes one that pops or else one that waits for this key alone.
  void wait(Caller by, std::span<const std::string_view> keys, Clock::time_point deadline,
            Effects& out);
  /// Waits until it exists: Found with its value, or TimedOut.
  void wait_get(Caller by, std::string_view key, Clock::time_point deadline, Effects& out);
  /// Number 1 if all exist now, else 0.
  void check(Caller by, std::span<const std::string_view> keys, Effects& out);

  void push(Caller by, std::string_view queue, BytesView value, Effects& out);            // Done
  void try_pop(Caller by, std::string_view queue, Effects& out);                          // Popped
  void pop(Caller by, std::string_view queue, Clock::time_point deadline, Effects& out);  // Popped
  void queue_size(Caller by, std::string_view queue, Effects& out);                       // Number

  /// Changed for every change from now on, until cancelled.
  void watch(Caller by, std::string_view key, Effects& out);

  /// `contributors` arrive in round `round` of the aggregate `name`; answered Done / Gathered when
  /// all 0..count-1 of that round have. Contributing twice counts once, so it may be resent and
  /// combined. A contribution to round r of someone who took part in r-1 proves that its answer
  /// to r-1 arrived. A count that differs from the others' is refused.
  void barrier(Caller by, std::string_view name, std::uint64_t round, int count,
               std::span<const int> contributors, Clock::time_point deadline, Effects& out);
  void all_gather(Caller by, std::string_view name, std::uint64_t round, int count,
                  std::span<const int> contributors, std::span<const BytesView> blobs,
                  Clock::time_point deadline, Effects& out);

  /// This contributor will not come any more: every aggregate of `count` contributors that lacks it
  /// is refused with Errc::peer_lost and `why`, those that wait now and those that begin later.
  void lose_contributor(int contributor, int count, std::string_view why, Effects& out);

  /// Ends that client's wait or watch without an answer; true if there was one.
  bool cancel(Caller by);
  void disconnect(std::uint64_t client);
  /// As disconnect, but each wait and watch is answered: refused with Errc::aborted and `why`.
  void dismiss(std::uint64_t client, std::string_view why, Effects& out);
  /// Answers what has expired by `now`.
  void tick(Clock::time_point now, Effects& out);
  /// When tick is next needed.
  std::optional<Clock::time_point> next_deadline() const;

  std::size_t size() const;
  std::size_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch::store
