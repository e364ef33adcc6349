#pragma once

#include "collectives/algorithms/select/rows.hpp"

#include <cassert>
#include <cstddef>

/// Maps algorithms to their functions. Only some algorithms of a family serve an operation. Its
/// list has exactly those that the table names: otherwise it does not compile.
namespace dlaunch::algorithms {

template <class One, class Function>
struct Way {
  constexpr Way() = default;
  constexpr Way(One serves, Function* by) : algorithm(serves), function(by), is_used(true) {}

  One algorithm{};
  Function* function = nullptr;
  /// Whether the place in the list is used. (With GCC's UBSan no constant expression may compare
  /// `function` with null.)
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

/// Whether the list has exactly the algorithms that the table names for the operation. Rows for
/// registered buffers do not count: algorithms that serve other buffers, too, find out by
/// themselves that all are registered.
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
