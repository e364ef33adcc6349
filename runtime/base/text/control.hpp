#pragma once

#include <algorithm>
#include <string>

/// Removes control characters from outside text, which in logs and on terminals could begin a line
/// or steer the terminal.
namespace dlaunch {

/// One of ASCII's; char may be signed or not.
constexpr bool is_control(char c) {
  constexpr unsigned char first_printable = 0x20, del = 0x7f;
  const auto byte = static_cast<unsigned char>(c);
  return byte < first_printable || byte == del;
}

/// The text with each of them replaced by a question mark.
inline std::string without_controls(std::string text) {
  std::ranges::replace_if(text, is_control, '?');
  return text;
}

}  // namespace dlaunch
