#pragma once

#include <cstddef>
#include <utility>

/// Tables with the properties of each enumerator, which cannot lack a row:
///
///     constexpr auto table = enum_table<&Row::key, Key::first, Key::last>({{...}, {...}});
namespace dlaunch {
namespace detail {

template <class Member>
struct OfMember;
template <class Key, class Whole>
struct OfMember<Key Whole::*> {
  using Enum = Key;
  using Row = Whole;
};

}  // namespace detail

/// One row for each enumerator, in their order; `key` is the member of a row that names its
/// enumerator. enum_table makes it.
template <auto key, std::size_t count>
struct EnumTable {
  using Row = typename detail::OfMember<decltype(key)>::Row;
  using Enum = typename detail::OfMember<decltype(key)>::Enum;

  /// Null for a number that is none of them, which may come off a wire.
  constexpr const Row* find(Enum which) const noexcept {
    // One below the first wraps round to a huge number.
    const std::size_t row = static_cast<std::size_t>(which) - static_cast<std::size_t>(first());
    return row < count ? &rows_[row] : nullptr;
  }
  /// A row of defaults for such a number.
  constexpr Row of(Enum which) const noexcept {
    const Row* const found = find(which);
    return found != nullptr ? *found : Row{};
  }
  constexpr const Row& operator[](std::size_t row) const noexcept { return rows_[row]; }
  constexpr const Row* begin() const noexcept { return rows_; }
  constexpr const Row* end() const noexcept { return rows_ + count; }
  static constexpr std::size_t size() noexcept { return count; }
  constexpr Enum first() const noexcept { return rows_[0].*key; }
  constexpr Enum last() const noexcept { return rows_[count - 1].*key; }

  Row rows_[count];
};

/// The rows of the enumerators from `first` to `last`. A table that lacks a row, or has one at
/// another's place, does not compile.
template <auto key, typename detail::OfMember<decltype(key)>::Enum first,
          typename detail::OfMember<decltype(key)>::Enum last, std::size_t count>
consteval EnumTable<key, count> enum_table(
    const typename detail::OfMember<decltype(key)>::Row (&rows)[count]) {
  for (std::size_t i = 0; i < count; ++i) {
    if (static_cast<std::size_t>(rows[i].*key) != static_cast<std::size_t>(first) + i) {
      throw "one row for each enumerator, in their order";
    }
  }
  if (rows[count - 1].*key != last) throw "a row for each enumerator";
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return EnumTable<key, count>{{rows[i]...}};
  }
  (std::make_index_sequence<count>());
}

}  // namespace dlaunch
