// Keys found by name and walked in order, however many there are.
#include "runtime/store/core/key_map.hpp"

#include "tests/support/short_memory.hpp"

#include <cstddef>
#include <map>
#include <new>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

std::string key(int number) { return "key-" + std::to_string(number); }

}  // namespace

TEST_CASE("a key is found until it is erased, however many come and go") {
  store::KeyMap<int> map;
  std::map<std::string, int> expected;
  for (int i = 0; i < 30'000; ++i) {
    map.add(key(i), i);
    expected.emplace(key(i), i);
    if (i % 3 == 0) continue;
    map.erase(map.find(key(i / 2 * 2)));
    expected.erase(key(i / 2 * 2));
    map.add(key(i / 2 * 2), -i);
    expected.emplace(key(i / 2 * 2), -i);
  }
  CHECK(map.size() == expected.size());
  auto at = map.begin();
  for (const auto& [name, value] : expected) {
    REQUIRE(at->first == name);
    REQUIRE(at->second == value);
    REQUIRE(map.find(name) == at++);
  }
  CHECK(at == map.end());
  CHECK_FALSE(map.contains("key-"));
  for (const auto& [name, value] : expected) map.erase(map.find(name));
  CHECK(map.size() == 0);
  CHECK(map.find(key(1)) == map.end());
}

TEST_CASE("no key that is added moves all the others") {
  store::KeyMap<int> map;
  run_short({});
  for (int i = 0; i < 200'000; ++i) map.add(key(i), i);
  // A table of all these names would be one piece of memory.
  CHECK(largest_allocation() < (200u << 10));
}

TEST_CASE("a key is in the map or is not, whichever allocation fails") {
  for (const long failures : {1L, 2L, never}) {
    for (long nth = 1; nth < 4000; nth = nth * 5 / 4 + 1) {
      store::KeyMap<int> map;
      run_short({nth, failures});
      int added = 0;
      try {
        for (; added < 3000; ++added) map.add(key(added), added);
      } catch (const std::bad_alloc&) {
      }
      have_enough();
      REQUIRE(map.size() == static_cast<std::size_t>(added));
      for (int i = 0; i < 3000; ++i) REQUIRE(map.contains(key(i)) == (i < added));
      for (int i = added; i < 3000; ++i) map.add(key(i), i);
      for (int i = 0; i < 3000; ++i) REQUIRE(map.find(key(i))->second == i);
    }
  }
}
