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
  One algorithm{};
  Function* function = nullptr;  ///< Null: a place in the list that is not used.
};

template <class One, class Function, std::size_t n>
constexpr Function* find_way(const Way<One, Function> (&ways)[n], One algorithm) noexcept {
  for (const auto& way : ways) {
    if (way.function != nullptr && way.algorithm == algorithm) return way.function;
  }
  return nullptr;
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
    if (find_way(ways, row.choice.algorithm.template as<One>()) == nullptr) return false;
  }
  for (const auto& way : ways) {
    if (way.function != nullptr && !is_named(way.algorithm)) return false;
  }
  return true;
}

/// The function of an algorithm that select() has named.
template <class One, class Function, std::size_t n>
Function& way_of(const Way<One, Function> (&ways)[n], One algorithm) noexcept {
  Function* const found = find_way(ways, algorithm);
  assert(found != nullptr && "is_whole() says that there is one");
  return *found;
}

}  // namespace dlaunch::algorithms
