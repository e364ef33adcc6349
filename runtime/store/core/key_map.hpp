#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/waits.hpp"

#include <bit>
#include <cstddef>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::store {

/// Keys and their values, found by name at the cost of a hash, and walked in order from any name
/// on. An item stays in place until it is erased.
///
/// The hash table is many small ones, and a key that is added moves the names of one of them at
/// most: one table of a million names would move all of them at once, for which every client of the
/// server would wait a tenth of a second. (It grows as in W. Litwin, Linear Hashing, VLDB 1980.)
template <class T>
class KeyMap {
  using Ordered = std::map<std::string, T, std::less<>>;

 public:
  using iterator = typename Ordered::iterator;
  using const_iterator = typename Ordered::const_iterator;

  iterator find(std::string_view key) {
    const Name name(key);
    const Table& table = tables_[place_of(name.hash)];
    const auto found = table.find(name);
    return found == table.end() ? ordered_.end() : found->second;
  }
  bool contains(std::string_view key) const {
    const Name name(key);
    return tables_[place_of(name.hash)].contains(name);
  }
  /// The key must be absent.
  iterator add(std::string_view key, T value) {
    const iterator added = ordered_.emplace(std::string(key), std::move(value)).first;
    try {
      const Name name(added->first);
      tables_[place_of(name.hash)].emplace(name, added);
    } catch (...) {
      ordered_.erase(added);
      throw;
    }
    if (ordered_.size() > tables_.size() * names_per_table) split();
    return added;
  }
  void erase(iterator at) {
    const Name name(at->first);
    tables_[place_of(name.hash)].erase(name);
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
  static constexpr std::size_t names_per_table = 1024;

  /// A name with its hash, so that no name has to be read again when a table grows.
  struct Name {
    explicit Name(std::string_view name) : text(name), hash(NameHash()(name)) {}
    std::string_view text;
    std::size_t hash;
    bool operator==(const Name& other) const { return text == other.text; }
  };
  struct HashOf {
    using is_avalanching = void;
    std::size_t operator()(const Name& name) const noexcept { return name.hash; }
  };
  using Table = FlatMap<Name, iterator, HashOf, std::equal_to<>>;

  /// By bits that the tables do not use: these look at the highest and the lowest ones.
  static std::size_t part_of(std::size_t hash, std::size_t parts) {
    constexpr int unused_from = 20;
    return (hash >> unused_from) & (parts - 1);
  }
  /// The tables before tables_.size() - whole have been split for twice as many, the others not.
  std::size_t place_of(std::size_t hash) const {
    const std::size_t whole = std::bit_floor(tables_.size());
    const std::size_t place = part_of(hash, 2 * whole);
    return place < tables_.size() ? place : part_of(hash, whole);
  }
  /// Moves a half of the next table's names to a new one. Without memory the table stays, and
  /// grows.
  void split() {
    const std::size_t whole = std::bit_floor(tables_.size()), next = tables_.size();
    try {
      Table half;
      for (const auto& each : tables_[next - whole]) {
        if (part_of(each.first.hash, 2 * whole) == next) half.insert(each);
      }
      tables_.push_back(std::move(half));
    } catch (const std::bad_alloc&) {
      return;
    }
    Table& before = tables_[next - whole];
    for (auto at = before.begin(); at != before.end();) {
      const auto name = at++;
      if (part_of(name->first.hash, 2 * whole) == next) before.erase(name);
    }
  }

  Ordered ordered_;
  std::vector<Table> tables_ = std::vector<Table>(1);
};

}  // namespace dlaunch::store
