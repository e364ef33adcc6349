#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/waits.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::store {

/// Keys and their values, found by name at the cost of a hash, and walked in order from any name
/// on. An item stays in place until it is erased.
template <class T>
class KeyMap {
  using Ordered = std::map<std::string, T, std::less<>>;

 public:
  using iterator = typename Ordered::iterator;
  using const_iterator = typename Ordered::const_iterator;

  iterator find(std::string_view key) {
    const auto found = by_name_.find(key);
    return found == by_name_.end() ? ordered_.end() : found->second;
  }
  bool contains(std::string_view key) const { return by_name_.contains(key); }
  /// The key must be absent.
  iterator add(std::string_view key, T value) {
    const iterator added = ordered_.emplace(std::string(key), std::move(value)).first;
    try {
      by_name_.emplace(added->first, added);
    } catch (...) {
      ordered_.erase(added);
      throw;
    }
    return added;
  }
  void erase(iterator at) {
    by_name_.erase(at->first);
    ordered_.erase(at);
  }
  iterator begin() { return ordered_.begin(); }
  /// The first key that is not before `key`, or behind it.
  const_iterator not_before(std::string_view key) const { return ordered_.lower_bound(key); }
  const_iterator behind(std::string_view key) const { return ordered_.upper_bound(key); }
  iterator end() { return ordered_.end(); }
  const_iterator end() const { return ordered_.end(); }
  std::size_t size() const { return ordered_.size(); }

 private:
  Ordered ordered_;
  FlatMap<std::string_view, iterator, NameHash, std::equal_to<>> by_name_;
};

}  // namespace dlaunch::store
