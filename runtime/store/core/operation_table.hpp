#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

namespace dlaunch::wire {

/// A message's number on the wire.
enum class Type : std::uint16_t;

}  // namespace dlaunch::wire

/// The elements of a table of operations.
namespace dlaunch::store::request {

/// The traits of an operation.
enum : unsigned {
  plain = 0,
  changes = 1,  ///< A repetition would change something a second time, so the answer is remembered.
  waits = 2,    ///< It may be answered late, and changes nothing if its waiter goes.
};

template <class M, unsigned Traits = plain>
struct Operation {
  using Message = M;
  static constexpr unsigned traits = Traits;
};

template <class... Operations>
struct OperationTable {
  static constexpr bool contains(wire::Type type) {
    return ((type == Operations::Message::type) || ...);
  }
  static constexpr bool has(wire::Type type, unsigned trait) {
    return ((type == Operations::Message::type && (Operations::traits & trait) != 0) || ...);
  }
  /// `act` is given each operation in turn until it returns true; whether it did.
  template <class Act>
  static constexpr bool any(const Act& act) {
    return (act(Operations()) || ...);
  }
};

// ---- A message's fields, in the order in which they are written. ----

/// Holds references to fields, and values that stand for several.
template <class... Fields>
std::tuple<Fields...> in_order(Fields&&... fields) {
  return {std::forward<Fields>(fields)...};
}

/// Items of two vectors, side by side, under one count.
template <class First, class Second>
struct Pairs {
  First& first;
  Second& second;
};
template <class First, class Second>
Pairs<First, Second> pairs(First& first, Second& second) {
  return {first, second};
}

}  // namespace dlaunch::store::request
