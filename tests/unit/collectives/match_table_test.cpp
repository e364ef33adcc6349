// A receive that names its source and tag is found at the same cost however many are posted. Steps
// are counted: how often the table asks an item for its key.
#include "collectives/transport/message/match_table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::transport {
namespace {

struct Item {
  MatchKey key;
  long* steps = nullptr;
  ListPlace<Item> place = {};

  friend MatchKey key_of(const Item& item) noexcept {
    ++*item.steps;
    return item.key;
  }
};
using Table = MatchTable<Item, &Item::place>;

/// So many items, the i-th with this key.
struct Posted {
  Posted(int count, const std::function<MatchKey(int)>& key) {
    for (int i = 0; i < count; ++i) {
      items.push_back(std::make_unique<Item>(Item{key(i), &steps}));
      table.add(*items.back());
    }
  }
  /// The steps of a search for each item, on average.
  double steps_to_find() {
    steps = 0;
    for (const auto& item : items) CHECK(table.find(item->key) == item.get());
    return static_cast<double>(steps) / static_cast<double>(items.size());
  }
  /// The same of searches for keys that none has.
  double steps_to_miss(const std::function<MatchKey(int)>& key) {
    steps = 0;
    for (int i = 0; i < static_cast<int>(items.size()); ++i) CHECK(table.find(key(i)) == nullptr);
    return static_cast<double>(steps) / static_cast<double>(items.size());
  }

  long steps = 0;
  std::vector<std::unique_ptr<Item>> items;
  Table table;
};

MatchKey message(int from, int tag, std::uint64_t communicator = 0x5bd1e9955bd1e995U) {
  return {Kind::message, from, tag, communicator};
}

struct Pattern {
  const char* name;
  MatchKey (*key)(int i);
};
/// How programs number their messages and ranks.
constexpr Pattern patterns[] = {
    {"tags in a row", [](int i) { return message(1, i); }},
    {"tags in steps of 64", [](int i) { return message(1, 64 * i); }},
    {"tags with a number in their upper bits", [](int i) { return message(1, i << 15); }},
    {"each rank with one tag", [](int i) { return message(i, 7); }},
    {"ranks, and a tag of each", [](int i) { return message(i, i); }},
    {"a grid of ranks and tags", [](int i) { return message(i % 64, i / 64); }},
    {"one message of each communicator",
     [](int i) { return message(1, 0, 0x9e3779b97f4a7c15U * static_cast<std::uint64_t>(i + 1)); }},
};

}  // namespace

TEST_CASE("what is exact is found in a few steps, however many there are") {
  // A bucket has one item on average, and the searched one is in the middle of its bucket.
  constexpr double steps_max = 2;
  for (const Pattern& pattern : patterns) {
    for (const int count : {1, 16, 1000, 20000}) {
      CAPTURE(std::string(pattern.name));
      CAPTURE(count);
      Posted posted(count, pattern.key);
      CHECK(posted.steps_to_find() <= steps_max);
      CHECK(posted.steps_to_miss([&](int i) { return pattern.key(count + i); }) <= steps_max);
    }
  }
}

TEST_CASE("those of one key are found in the order of posting, the first at once") {
  constexpr int count = 5000;
  Posted posted(count, [](int) { return message(1, 5); });
  posted.steps = 0;
  for (const auto& item : posted.items) {
    CHECK(posted.table.find(item->key) == item.get());
    posted.table.remove(*item);
  }
  CHECK(posted.steps <= 2 * count);  // One to find each, and one to take it out.
  CHECK(posted.table.empty());
}

TEST_CASE("adding and taking out take the same, too, growth included") {
  constexpr int count = 20000;
  Posted posted(count, [](int i) { return message(1, i); });
  // Each was added, and moved as the table doubled: less than twice on average.
  CHECK(posted.steps <= 3 * count);
  posted.steps = 0;
  for (int i = 0; i < count; i += 2) {
    posted.table.remove(*posted.items[static_cast<std::size_t>(i)]);
  }
  CHECK(posted.steps == count / 2);
  for (int i = 0; i < count; ++i) {
    Item& item = *posted.items[static_cast<std::size_t>(i)];
    CHECK(posted.table.find(item.key) == (i % 2 == 0 ? nullptr : &item));
  }
}

}  // namespace dlaunch::transport
