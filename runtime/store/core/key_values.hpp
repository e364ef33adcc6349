#pragma once

#include "runtime/store/core/effects.hpp"
#include "runtime/store/core/losses.hpp"
#include "runtime/store/core/memory_budget.hpp"
#include "runtime/store/core/operation_table.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace dlaunch::store {

/// Limits of one namespace; what exceeds them is refused with a sentence.
struct Limits {
  std::size_t key_bytes = 8u << 10;
  std::size_t value_bytes = 8u << 20;
  std::size_t keys = 1u << 20;
  std::size_t keys_per_request = 128u << 10;
  std::size_t queue_length = 1u << 20;
  std::size_t total_bytes = std::size_t{4} << 30;
  std::size_t waits_per_client = 4096;
  std::size_t leases_per_owner = 16u << 10;
  /// The most keys in one list, or one page of a list.
  std::size_t listed_keys = 4096;
  std::size_t listed_bytes = 256u << 10;
  std::size_t gathered_bytes = 15u << 20;  ///< The limit of what one all_gather may hand out.
  int contributors = 1 << 20;
  Clock::duration lease_min = std::chrono::milliseconds(100);
  Clock::duration lease_max = std::chrono::hours(1);
  std::shared_ptr<MemoryBudget> memory;  ///< Shared with others; null: nothing is counted.
};

class ChangeLog;
struct CompleteRound;

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
  /// The owner says goodbye: its leased keys go at once, or, where they are many, with the next
  /// ticks.
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
  /// The first of those behind `after`, as many as one answer may name.
  void list_page(Caller by, std::string_view prefix, std::optional<std::string_view> after,
                 Effects& out);         // KeyPage
  void count(Caller by, Effects& out);  // Number

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

  /// These contributors will not come any more: every aggregate of `world` contributors that lacks
  /// one of them is refused with Errc::peer_lost, those that wait now and those that begin later:
  /// "rank 3 " and `why`.
  void lose(Contributors lost, int world, std::string_view why, Effects& out);

  /// Ends that client's wait or watch without an answer; true if there was one.
  bool cancel(Caller by);
  void disconnect(std::uint64_t client);
  /// As disconnect, but each wait and watch is answered: refused with Errc::aborted and `why`.
  void dismiss(std::uint64_t client, std::string_view why, Effects& out);
  /// Tells the clients whose answers are missing after a call that has failed half way: they wait
  /// for what has happened, or watch what it may have changed. Takes no memory.
  void overdue(const std::function<void(std::uint64_t)>& tell) const noexcept;
  /// Answers requests that have expired by `now`, and goes on with long waits. If that is much, it
  /// does a part, and next_deadline() is then at once.
  void tick(Clock::time_point now, Effects& out);
  /// When tick is next needed.
  std::optional<Clock::time_point> next_deadline() const;

  /// Frees the memory of so many keys, and says whether there are more. For a namespace that nobody
  /// uses any more and that is too big to be destroyed at once.
  bool dissolve(std::size_t keys);
  /// Has the memory budget count what is held now. To be called after each of the other calls.
  void settle();

  std::size_t size() const;
  std::size_t bytes() const;

  /// `log`, which outlives this, hears of every change from now on.
  void log_to(ChangeLog& log);
  /// A key, the next entry of a queue and a complete round as a log has heard of them: to be told
  /// before anything is asked, without answers and limits. A lease begins anew.
  void restore_key(std::string_view key, BytesView value, std::uint64_t owner,
                   Clock::duration lease, Clock::time_point now);
  void restore_entry(std::string_view queue, BytesView value);
  void restore_round(const CompleteRound& round);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// ---- The requests to a namespace: a message each, and its line in the table. ----

/// The context in which a request is carried out.
struct Asked {
  KeyValues& values;
  Caller by;
  std::uint64_t session = 0;  ///< 0: none.
  Clock::time_point now;
  Effects& out;
};

}  // namespace dlaunch::store

/// Views point into the payload that was decoded. `type` is the number on the wire, `fields` their
/// order there, and `carry_out` answers the request.
namespace dlaunch::store::request {

/// How long the server waits before it answers `failed` with Errc::timeout.
struct Timeout {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t microseconds = none;

  static Timeout until(Clock::time_point deadline, Clock::time_point now);
  Clock::time_point deadline(Clock::time_point now) const;
  bool operator==(const Timeout&) const = default;
  static auto fields(auto& m) { return in_order(m.microseconds); }
};

struct Set {
  static constexpr wire::Type type{16};
  std::string_view key;
  BytesView value;

  static auto fields(auto& m) { return in_order(m.key, m.value); }
  void carry_out(const Asked& a) const { a.values.set(a.by, key, value, a.out); }
};
struct SetLeased {
  static constexpr wire::Type type{17};
  std::string_view key;
  BytesView value;
  std::uint64_t lease_ms = 0;

  std::chrono::milliseconds lease() const;

  static auto fields(auto& m) { return in_order(m.key, m.value, m.lease_ms); }
  void carry_out(const Asked& a) const {
    a.values.set_leased(a.by, key, value, a.session, lease(), a.now, a.out);
  }
};
struct Get {
  static constexpr wire::Type type{18};
  std::string_view key;

  static auto fields(auto& m) { return in_order(m.key); }
  void carry_out(const Asked& a) const { a.values.get(a.by, key, a.out); }
};
struct MultiGet {
  static constexpr wire::Type type{19};
  std::vector<std::string_view> keys;

  static auto fields(auto& m) { return in_order(m.keys); }
  void carry_out(const Asked& a) const { a.values.multi_get(a.by, keys, a.out); }
};
struct MultiSet {
  static constexpr wire::Type type{20};
  std::vector<std::string_view> keys;
  std::vector<BytesView> values;  ///< One for each key.

  static auto fields(auto& m) { return in_order(pairs(m.keys, m.values)); }
  void carry_out(const Asked& a) const { a.values.multi_set(a.by, keys, values, a.out); }
};
struct Add {
  static constexpr wire::Type type{21};
  std::string_view key;
  std::int64_t delta = 0;

  static auto fields(auto& m) { return in_order(m.key, m.delta); }
  void carry_out(const Asked& a) const { a.values.add(a.by, key, delta, a.out); }
};
struct CompareSet {
  static constexpr wire::Type type{22};
  std::string_view key;
  std::optional<BytesView> expected;
  BytesView desired;

  static auto fields(auto& m) { return in_order(m.key, m.expected, m.desired); }
  void carry_out(const Asked& a) const {
    a.values.compare_set(a.by, key, expected, desired, a.out);
  }
};
struct Append {
  static constexpr wire::Type type{23};
  std::string_view key;
  BytesView tail;

  static auto fields(auto& m) { return in_order(m.key, m.tail); }
  void carry_out(const Asked& a) const { a.values.append(a.by, key, tail, a.out); }
};
struct Erase {
  static constexpr wire::Type type{24};
  std::string_view key;

  static auto fields(auto& m) { return in_order(m.key); }
  void carry_out(const Asked& a) const { a.values.erase(a.by, key, a.out); }
};
struct List {
  static constexpr wire::Type type{25};
  std::string_view prefix;

  static auto fields(auto& m) { return in_order(m.prefix); }
  void carry_out(const Asked& a) const { a.values.list(a.by, prefix, a.out); }
};
/// The answer names the first keys behind `after`, or of all, and says whether there are more.
struct ListPage {
  static constexpr wire::Type type{39};
  std::string_view prefix;
  std::optional<BytesView> after;

  static auto fields(auto& m) { return in_order(m.prefix, m.after); }
  void carry_out(const Asked& a) const {
    const auto behind = after ? std::optional(as_text(*after)) : std::nullopt;
    a.values.list_page(a.by, prefix, behind, a.out);
  }
};
struct Count {
  static constexpr wire::Type type{26};

  void carry_out(const Asked& a) const { a.values.count(a.by, a.out); }
};
struct Wait {
  static constexpr wire::Type type{27};
  Timeout timeout;
  std::vector<std::string_view> keys;

  static auto fields(auto& m) { return in_order(m.timeout, m.keys); }
  void carry_out(const Asked& a) const {
    a.values.wait(a.by, keys, timeout.deadline(a.now), a.out);
  }
};
struct WaitGet {
  static constexpr wire::Type type{28};
  Timeout timeout;
  std::string_view key;

  static auto fields(auto& m) { return in_order(m.timeout, m.key); }
  void carry_out(const Asked& a) const {
    a.values.wait_get(a.by, key, timeout.deadline(a.now), a.out);
  }
};
struct Push {
  static constexpr wire::Type type{29};
  std::string_view queue;
  BytesView value;

  static auto fields(auto& m) { return in_order(m.queue, m.value); }
  void carry_out(const Asked& a) const { a.values.push(a.by, queue, value, a.out); }
};
struct TryPop {
  static constexpr wire::Type type{30};
  std::string_view queue;

  static auto fields(auto& m) { return in_order(m.queue); }
  void carry_out(const Asked& a) const { a.values.try_pop(a.by, queue, a.out); }
};
struct Pop {
  static constexpr wire::Type type{31};
  Timeout timeout;
  std::string_view queue;

  static auto fields(auto& m) { return in_order(m.timeout, m.queue); }
  void carry_out(const Asked& a) const {
    a.values.pop(a.by, queue, timeout.deadline(a.now), a.out);
  }
};
struct QueueSize {
  static constexpr wire::Type type{32};
  std::string_view queue;

  static auto fields(auto& m) { return in_order(m.queue); }
  void carry_out(const Asked& a) const { a.values.queue_size(a.by, queue, a.out); }
};
struct Watch {
  static constexpr wire::Type type{33};
  std::string_view key;

  static auto fields(auto& m) { return in_order(m.key); }
  void carry_out(const Asked& a) const { a.values.watch(a.by, key, a.out); }
};
/// Ends a wait or a watch of this connection without an answer to it.
struct Cancel {
  static constexpr wire::Type type{34};
  std::uint64_t request = 0;

  static auto fields(auto& m) { return in_order(m.request); }
  void carry_out(const Asked& a) const {
    const bool ended = a.values.cancel({a.by.client, request});
    a.out.push_back({a.by, Number{ended ? 1 : 0}});
  }
};
struct Barrier {
  static constexpr wire::Type type{35};
  std::string_view name;
  std::uint64_t round = 0;
  std::int32_t count = 0;
  Timeout timeout;
  std::vector<std::int32_t> contributors;

  static auto fields(auto& m) {
    return in_order(m.name, m.round, m.count, m.timeout, m.contributors);
  }
  void carry_out(const Asked& a) const {
    a.values.barrier(a.by, name, round, count, contributors, timeout.deadline(a.now), a.out);
  }
};
struct AllGather {
  static constexpr wire::Type type{36};
  std::string_view name;
  std::uint64_t round = 0;
  std::int32_t count = 0;
  Timeout timeout;
  std::vector<std::int32_t> contributors;
  std::vector<BytesView> blobs;  ///< One for each contributor.

  static auto fields(auto& m) {
    return in_order(m.name, m.round, m.count, m.timeout, pairs(m.contributors, m.blobs));
  }
  void carry_out(const Asked& a) const {
    a.values.all_gather(a.by, name, round, count, contributors, blobs, timeout.deadline(a.now),
                        a.out);
  }
};
/// The leases of this session go on.
struct Renew {
  static constexpr wire::Type type{37};

  void carry_out(const Asked& a) const {
    a.values.renew(a.session, a.now);
    a.out.push_back({a.by, Done{}});
  }
};
/// Erases at once the keys among these that this session still leases: their holder, for whom the
/// session leased them, is gone.
struct EndLeases {
  static constexpr wire::Type type{38};
  std::vector<std::string_view> keys;

  static auto fields(auto& m) { return in_order(m.keys); }
  void carry_out(const Asked& a) const { a.values.end_leases(a.by, keys, a.session, a.out); }
};

/// All requests; a new one is a line here. Whether a request may be repeated or cancelled follows
/// from its line.
using Requests =
    OperationTable<Operation<Set, changes>, Operation<SetLeased, changes>, Operation<Get>,
                   Operation<MultiGet>, Operation<MultiSet, changes>, Operation<Add, changes>,
                   Operation<CompareSet, changes>, Operation<Append, changes>,
                   Operation<Erase, changes>, Operation<List>, Operation<Count>,
                   Operation<Wait, waits>, Operation<WaitGet, waits>, Operation<Push, changes>,
                   Operation<TryPop, changes>, Operation<Pop, changes | waits>,
                   Operation<QueueSize>, Operation<Watch, waits>, Operation<Cancel>,
                   Operation<Barrier, waits>, Operation<AllGather, waits>, Operation<Renew>,
                   Operation<EndLeases, changes>, Operation<ListPage>>;

}  // namespace dlaunch::store::request
