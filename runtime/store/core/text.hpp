#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlaunch::store {

/// A name as messages show it: in quotes, and cut where it is long.
inline std::string name_in_quotes(std::string_view name) {
  constexpr std::size_t shown = 64;
  std::string text(1, '\'');
  text += name.substr(0, shown);
  text += name.size() > shown ? "...'" : "'";
  return text;
}

/// "a", "a and b", "a, b and c", "a, b, c and 17 more"; `show` makes an item a string.
template <class Items, class Show>
std::string listed(const Items& items, Show show) {
  constexpr std::size_t shown = 8;
  const std::size_t count = items.size() > shown + 1 ? shown : items.size();
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += show(items[i]);
  }
  if (count < items.size()) text += " and " + std::to_string(items.size() - count) + " more";
  return text;
}

}  // namespace dlaunch::store
