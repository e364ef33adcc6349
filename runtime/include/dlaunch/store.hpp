#pragma once

#include <dlaunch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

/// The key-value store through which the ranks of a job meet: a map of byte strings with counters.
/// A program may bring its own. A key has up to 8 KiB, a value up to 8 MiB. Any thread may call at
/// any time; a waiting call does not hold up others.
///
/// Every call throws Error: unreachable or peer_lost when the server cannot be reached, refused
/// with the server's reason (a limit, a counter that holds no number), timeout where a deadline is
/// taken. A call whose connection breaks is repeated and still counts once.
class DLAUNCH_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, BytesView value) = 0;
  /// Absent is an answer, not an error.
  [[nodiscard]] virtual std::optional<Bytes> get(std::string_view key) = 0;
  /// Waits until the key exists and gives its value.
  virtual Bytes wait(std::string_view key, Clock::time_point deadline) = 0;
  /// Adds to a decimal counter (absent counts as 0) and gives the sum.
  virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
  /// Stores `desired` if the current value is `expected`; nullopt stands for absent. True if it
  /// did.
  virtual bool compare_set(std::string_view key, std::optional<BytesView> expected,
                           BytesView desired) = 0;
  /// True if the key existed.
  virtual bool erase(std::string_view key) = 0;
};

// For any store. A JobStore does each in one request, another one by its six calls.

/// Waits until all keys exist. A timeout names the missing ones.
DLAUNCH_API void wait_all(Store& store, std::span<const std::string> keys,
                          Clock::time_point deadline);
/// Appends to the value (absent counts as empty); gives the new size in bytes.
DLAUNCH_API std::size_t append(Store& store, std::string_view key, BytesView tail);
[[nodiscard]] DLAUNCH_API std::vector<std::optional<Bytes>> multi_get(
    Store& store, std::span<const std::string> keys);
DLAUNCH_API void multi_set(Store& store, std::span<const std::string> keys,
                           std::span<const Bytes> values);
/// Returns when `count` different contributors have arrived under this name; may be used again
/// at once. A timeout names who is missing. `contributor` is 0..count-1, a rank.
DLAUNCH_API void barrier(Store& store, std::string_view name, int contributor, int count,
                         Clock::time_point deadline);
/// The same, and everyone gets everyone's bytes, in order of contributor.
DLAUNCH_API std::vector<Bytes> all_gather(Store& store, std::string_view name, int contributor,
                                          int count, BytesView blob, Clock::time_point deadline);

/// One change of a watched key.
struct KeyChange {
  enum class Kind { created, updated, deleted };
  Kind kind = Kind::created;
  std::string key;
  std::optional<Bytes> value;  ///< The new value; nullopt when deleted.
};

namespace store {
class Carrier;
}

/// The store that dlaunch keeps for a job: leases, lists, queues and watches besides. To ask
/// whether a world's store is one, `dynamic_cast<JobStore*>(world.store().get())`.
class DLAUNCH_API JobStore : public Store {
 public:
  explicit JobStore(std::unique_ptr<store::Carrier> carrier);
  ~JobStore() override;

  void set(std::string_view key, BytesView value) override;
  std::optional<Bytes> get(std::string_view key) override;
  Bytes wait(std::string_view key, Clock::time_point deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta) override;
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override;
  bool erase(std::string_view key) override;

  /// As the functions of these names.
  void wait_all(std::span<const std::string> keys, Clock::time_point deadline);
  std::size_t append(std::string_view key, BytesView tail);
  [[nodiscard]] std::vector<std::optional<Bytes>> multi_get(std::span<const std::string> keys);
  void multi_set(std::span<const std::string> keys, std::span<const Bytes> values);
  void barrier(std::string_view name, int contributor, int count, Clock::time_point deadline);
  std::vector<Bytes> all_gather(std::string_view name, int contributor, int count, BytesView blob,
                                Clock::time_point deadline);

  /// The key disappears when this process has not been heard of for `lease` (100 ms to 1 h); as
  /// long as the store lives, it renews the lease by itself.
  void set_leased(std::string_view key, BytesView value, Clock::duration lease);
  /// The keys that begin with `prefix`, sorted.
  [[nodiscard]] std::vector<std::string> list(std::string_view prefix);

  /// Queues are first-in first-out and live beside the map, under names of their own.
  void push(std::string_view queue, BytesView value);
  Bytes pop(std::string_view queue, Clock::time_point deadline);
  std::optional<Bytes> try_pop(std::string_view queue);
  [[nodiscard]] std::size_t queue_size(std::string_view queue);

  /// Waits for the next change of `key` after the last one this store object told of (the first
  /// call: after the call). Over a connection that breaks, the outcome of what was missed comes as
  /// one change.
  KeyChange watch(std::string_view key, Clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes of a string, and back.
inline BytesView as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string_view as_text(BytesView bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace dlaunch
