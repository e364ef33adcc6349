#pragma once

#include <dlaunch/store.hpp>

#include <deque>
#include <optional>
#include <string>

namespace dlaunch::store {

/// A watched key as its watcher knows it: the changes that have come and were not taken yet, and
/// the last known value. Behind every watch, the first and each after a reconnect, the client asks
/// for the present value. If that differs from the last one, changes were missed, and their outcome
/// counts as one. Pure; not thread-safe.
class Watched {
 public:
  /// Changes that nobody has asked for; beyond, the oldest are dropped.
  static constexpr std::size_t unread_changes_max = 1024;

  explicit Watched(std::string key) : key_(std::move(key)) {}

  /// The server told of a change.
  void changed(KeyChange change);
  /// The server told the present value; nullopt: there is none.
  void is_now(std::optional<Bytes> value);

  bool has_news() const { return !changes_.empty(); }
  /// The oldest change; there must be one.
  KeyChange take();

 private:
  std::string key_;
  /// Whether `last_` is known, which it is not before the first answer.
  bool known_ = false;
  std::optional<Bytes> last_;  ///< nullopt: no such key.
  std::deque<KeyChange> changes_;
};

}  // namespace dlaunch::store
