#pragma once

#include "collectives/algorithms/select/rows.hpp"

#include <cassert>
#include <cstddef>

/// From an algorithm to the function that is it. An operation is served by few of a family's
/// algorithms: its list names those, and does not compile where the table names another, or does
/// not name one of them.
namespace dlaunch::algorithms {

template <class One, class Function>
struct Way {
  constexpr Way() = default;
  constexpr Way(One serves, Function* by) : algorithm(serves), function(by), is_used(true) {}

  One algorithm{};
  Function* function = nullptr;
  /// Else it is a place in the list that is left over. GCC's UBSan lets no constant expression
  /// compare `function` with null.
  bool is_used = false;
};

/// The algorithm's place in the list; -1: none.
template <class One, class Function, std::size_t n>
constexpr int find_way(const Way<One, Function> (&ways)[n], One algorithm) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    if (ways[i].is_used && ways[i].algorithm == algorithm) return static_cast<int>(i);
  }
  return -1;
}

/// Whether the list has just what the table names for the operation. Registered buffers are no
/// matter of their own: an algorithm that serves others, too, finds out that all of them are.
template <class One, class Function, std::size_t n>
constexpr bool is_whole(const Way<One, Function> (&ways)[n], transport::Op op) noexcept {
  const auto is_named = [&](One algorithm) {
    for (const Row& row : rows::built_in) {
      if (row.op == op && !row.registered && row.choice.algorithm == algorithm) return true;
    }
    return false;
  };
  for (const Row& row : rows::built_in) {
    if (row.op != op || row.registered || row.choice.algorithm.family() != family_of<One>) continue;
    if (find_way(ways, row.choice.algorithm.template as<One>()) < 0) return false;
  }
  for (const auto& way : ways) {
    if (way.is_used && !is_named(way.algorithm)) return false;
  }
  return true;
}

/// The function of an algorithm that select() has named.
template <class One, class Function, std::size_t n>
Function& way_of(const Way<One, Function> (&ways)[n], One algorithm) noexcept {
  const int found = find_way(ways, algorithm);
  assert(found >= 0 && "is_whole() says that there is one");
  return *ways[found].function;
}

}  // namespace dlaunch::algorithms
