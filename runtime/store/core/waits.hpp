#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/key_values.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::store {

/// Hashes std::string and std::string_view alike, so that a look-up allocates nothing.
struct NameHash {
  using is_transparent = void;
  using is_avalanching = void;
  std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>{}(name);
  }
};
template <class T>
using ByName = FlatMap<std::string, T, NameHash, std::equal_to<>>;

/// Names, one behind the other in one piece of memory. A name is known by its place: that of the
/// first is 0, and end() is behind the last.
class NameList {
 public:
  NameList() = default;
  explicit NameList(std::string_view name) { append(name); }
  explicit NameList(std::span<const std::string_view> names);

  void append(std::string_view name);
  std::string_view operator[](std::size_t place) const {
    return std::string_view(packed_).substr(place + sizeof(std::uint32_t), size_at(place));
  }
  std::size_t next(std::size_t place) const {
    return place + sizeof(std::uint32_t) + size_at(place);
  }
  std::size_t end() const { return packed_.size(); }
  std::size_t count() const { return count_; }

 private:
  std::uint32_t size_at(std::size_t place) const;

  std::string packed_;
  std::size_t count_ = 0;
};

/// A request that is not answered yet.
struct PendingWait {
  enum class Kind : std::uint8_t { keys, value, pop, watch, barrier, gather };
  Kind kind{};
  Caller by;
  NameList names;      ///< The keys; the queue; the aggregate.
  std::size_t at = 0;  ///< Place of the name it listens to; for Kind::keys an absent one.
  Clock::time_point deadline = Clock::time_point::max();
  bool woken = false;  ///< Kind::keys: that name has come, and the others are still to be examined.
  /// Kind::keys: while they are examined, a part at a time: the place of the next one, and how many
  /// in a row exist.
  std::size_t next = 0, looked = 0;
  /// Kind::keys, after the deadline: the place of the next name to examine, and the missing ones
  /// before it.
  std::size_t late_next = 0;
  TimedOut late = {};

  /// About how many bytes it takes.
  std::size_t bytes() const;
};

/// All waits, with callers, names and deadlines; found by each of these. No look-up is linear in
/// the number of waits, or of the names of one, since a wait for many keys listens to one absent
/// key at a time. Ids grow, so that the first to come is served first.
class Waits {
 public:
  using Id = std::uint64_t;
  /// Names of different kinds do not meet.
  enum class Channel : std::uint8_t { exists, pop, watch, barrier, gather };
  using Ids = std::set<Id>;

  Id add(PendingWait wait);
  /// Null when it has ended.
  PendingWait* find(Id id);
  std::optional<Id> find(Caller by) const;
  PendingWait take(Id id);
  /// Makes a wait listen to its name at this place.
  void listen_at(Id id, std::size_t place);

  /// Null when nobody does. Valid until the next change.
  const Ids* listeners(Channel channel, std::string_view name) const;
  bool any(Channel channel) const { return !channels_[index(channel)].empty(); }

  std::size_t count_of(std::uint64_t client) const;
  template <class Look>
  void for_each(Look look) const {
    for (const auto& [id, wait] : waits_) look(wait);
  }
  std::size_t bytes() const { return bytes_; }
  std::optional<Id> any_of(std::uint64_t client) const;
  std::optional<std::pair<Clock::time_point, Id>> earliest() const;

 private:
  static std::size_t index(Channel channel) { return static_cast<std::size_t>(channel); }
  static Channel channel_of(PendingWait::Kind kind);
  void listen(Id id, Channel channel, std::string_view name);
  void unlisten(Id id, Channel channel, std::string_view name);

  Id next_ = 1;
  std::size_t bytes_ = 0;
  FlatMap<Id, PendingWait> waits_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Id> by_caller_;
  FlatMap<std::uint64_t, std::size_t> per_client_;
  std::set<std::pair<Clock::time_point, Id>> deadlines_;
  std::array<ByName<Ids>, 5> channels_;
};

}  // namespace dlaunch::store
