#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/key_values.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// A request that is not answered yet.
struct PendingWait {
  enum class Kind : std::uint8_t { keys, value, pop, watch, barrier, gather };
  Kind kind{};
  Caller by;
  std::vector<std::string> names;  ///< The keys; the queue; the aggregate.
  std::size_t missing = 0;         ///< Kind::keys: how many of the names it still listens to.
  Clock::time_point deadline = Clock::time_point::max();
};

/// All waits: by whom, for what, until when; found by name, by caller and by deadline, none of it
/// linear in the number of waits. Ids grow, so that the first to come is served first.
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

  /// False if it already does.
  bool listen(Id id, Channel channel, std::string_view name);
  void unlisten(Id id, Channel channel, std::string_view name);
  /// Null when nobody does. Valid until the next change.
  const Ids* listeners(Channel channel, std::string_view name) const;
  /// All names that somebody listens to.
  std::vector<std::string> names(Channel channel) const;
  bool any(Channel channel) const { return !channels_[index(channel)].empty(); }

  std::size_t count_of(std::uint64_t client) const;
  std::optional<Id> any_of(std::uint64_t client) const;
  std::optional<std::pair<Clock::time_point, Id>> earliest() const;

 private:
  static std::size_t index(Channel channel) { return static_cast<std::size_t>(channel); }
  static Channel channel_of(PendingWait::Kind kind);

  Id next_ = 1;
  FlatMap<Id, PendingWait> waits_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Id> by_caller_;
  FlatMap<std::uint64_t, std::size_t> per_client_;
  std::set<std::pair<Clock::time_point, Id>> deadlines_;
  std::array<ByName<Ids>, 5> channels_;
};

}  // namespace dlaunch::store
