#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlaunch::store {

/// A name as messages show it: in quotes, and cut where it is long.
inline std::string quoted(std::string_view name) {
  constexpr std::size_t shown = 64;
  std::string text(1, '\'');
  text += name.substr(0, shown);
  text += name.size() > shown ? "...'" : "'";
  return text;
}

}  // namespace dlaunch::store
