#pragma once

#include <algorithm>
#include <string>

/// What came from outside goes to logs and terminals, where a control character would begin a line
/// or steer the terminal.
namespace dlaunch {

/// One of ASCII's; char may be signed or not.
constexpr bool is_control(char c) {
  constexpr unsigned char first_printable = 0x20, del = 0x7f;
  const auto byte = static_cast<unsigned char>(c);
  return byte < first_printable || byte == del;
}

/// With a question mark in the place of each.
inline std::string without_controls(std::string text) {
  std::ranges::replace_if(text, is_control, '?');
  return text;
}

}  // namespace dlaunch
