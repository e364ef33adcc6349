#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/key_values.hpp"

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

/// The keys that each owner holds, and when each is lost unless the owner is heard of. Pure.
class Leases {
 public:
  /// `owner` was heard of at `now` and holds `key` from now on. If memory is short, nobody does.
  void hold(std::uint64_t owner, std::string_view key, Clock::duration lease,
            Clock::time_point now);
  /// The key is nobody's any more.
  void release(std::uint64_t owner, std::string_view key);
  void renew(std::uint64_t owner, Clock::time_point now);
  /// The leases of all the owner's keys have run out. Returns `most` of the keys, to be released.
  std::vector<std::string> end(std::uint64_t owner, std::size_t most);
  /// The keys whose lease has run out by `now`, to be released: `enough` of them at the most.
  std::vector<std::string> expired(Clock::time_point now, std::size_t enough) const;
  /// The same for all keys, which are released.
  std::vector<std::string> take(std::uint64_t owner);
  std::vector<std::string> take_expired(Clock::time_point now);
  std::size_t count_of(std::uint64_t owner) const;
  std::optional<Clock::time_point> earliest() const;
  /// The bytes that all of this takes, about.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Owner {
    Clock::time_point heard;
    Clock::time_point next;  ///< When the first of its keys is lost; as in `queue_`.
    std::map<std::string, Clock::duration, std::less<>> keys;
    std::set<std::pair<Clock::duration, std::string_view>> by_length;  ///< The same keys.
  };
  using Held = std::pair<std::string, std::uint64_t>;  ///< A key, and its owner.
  std::vector<Held> all_expired(Clock::time_point now, std::size_t enough) const;
  std::vector<std::string> release_all(std::vector<Held> held);
  /// Takes memory only for an owner that was not scheduled before.
  void schedule(std::uint64_t id, Owner& owner);
  void forget(Owner& owner, std::string_view key);

  std::size_t bytes_ = 0;
  FlatMap<std::uint64_t, Owner> owners_;
  std::set<std::pair<Clock::time_point, std::uint64_t>> queue_;
};

}  // namespace dlaunch::store
