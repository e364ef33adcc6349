#pragma once

#include <dlaunch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

/// One change of a watched key.
struct KeyChange {
  enum class Kind { created, updated, deleted };
  Kind kind = Kind::created;
  std::string key;
  std::optional<Bytes> value;  ///< The new value; nullopt when deleted.
};

/// The key-value store through which the ranks of a job meet: a map of byte strings with counters,
/// queues and a few operations that spare N processes N round trips. A key has up to 8 KiB, a
/// value up to 8 MiB. Any thread may call at any time; a waiting call does not hold up others.
///
/// Every call throws Error: unreachable or peer_lost when the server cannot be reached, refused
/// with the server's reason (a limit, a counter that holds no number), timeout where a deadline is
/// taken. A call whose connection breaks is repeated and still counts once.
class DLAUNCH_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, BytesView value) = 0;
  /// The key disappears when this process has not been heard of for `lease` (100 ms to 1 h); as
  /// long as the store object lives, it renews the lease by itself.
  virtual void set_leased(std::string_view key, BytesView value, Clock::duration lease) = 0;
  /// Absent is an answer, not an error.
  [[nodiscard]] virtual std::optional<Bytes> get(std::string_view key) = 0;
  /// Waits until the key exists and returns its value.
  virtual Bytes wait(std::string_view key, Clock::time_point deadline) = 0;
  /// Waits until all keys exist. A timeout names the missing ones.
  virtual void wait_all(std::span<const std::string> keys, Clock::time_point deadline) = 0;
  /// Adds to a decimal counter (absent counts as 0) and returns the sum.
  virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
  /// Stores `desired` if the current value is `expected`; nullopt stands for absent. Returns
  /// whether it did.
  virtual bool compare_set(std::string_view key, std::optional<BytesView> expected,
                           BytesView desired) = 0;
  /// Appends to the value (absent counts as empty); returns the new size in bytes.
  virtual std::size_t append(std::string_view key, BytesView tail) = 0;
  /// Returns whether the key existed.
  virtual bool erase(std::string_view key) = 0;
  /// The keys that begin with `prefix`, sorted.
  [[nodiscard]] virtual std::vector<std::string> list(std::string_view prefix) = 0;

  [[nodiscard]] virtual std::vector<std::optional<Bytes>> multi_get(
      std::span<const std::string> keys) = 0;
  virtual void multi_set(std::span<const std::string> keys, std::span<const Bytes> values) = 0;

  /// Queues are first-in first-out and live beside the map, under names of their own.
  virtual void push(std::string_view queue, BytesView value) = 0;
  virtual Bytes pop(std::string_view queue, Clock::time_point deadline) = 0;
  virtual std::optional<Bytes> try_pop(std::string_view queue) = 0;
  [[nodiscard]] virtual std::size_t queue_size(std::string_view queue) = 0;

  /// Waits for the next change of `key` after the last one this store object returned for it (the
  /// first call: after the call). Over a connection that breaks, the outcome of what was missed
  /// comes as one change.
  virtual KeyChange watch(std::string_view key, Clock::time_point deadline) = 0;

  /// Returns when `count` different contributors have arrived under this name; may be used again
  /// at once. A timeout names who is missing. `contributor` is 0..count-1, a rank.
  virtual void barrier(std::string_view name, int contributor, int count,
                       Clock::time_point deadline) = 0;
  /// The same, and everyone gets everyone's bytes, in order of contributor.
  virtual std::vector<Bytes> all_gather(std::string_view name, int contributor, int count,
                                        BytesView blob, Clock::time_point deadline) = 0;
};

/// Bytes of a string, and back.
inline BytesView as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string_view as_text(BytesView bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace dlaunch
