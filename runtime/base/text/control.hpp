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

/// The text with each of them, and each of Unicode's second set in UTF-8, which terminals obey as
/// well, replaced by question marks.
inline std::string without_controls(std::string text) {
  std::ranges::replace_if(text, is_control, '?');
  constexpr char lead = '\xc2';
  for (auto at = text.find(lead); at != std::string::npos; at = text.find(lead, at + 1)) {
    const auto byte = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0U;
    if (byte >= 0x80U && byte < 0xa0U) text.replace(at, 2, "??");
  }
  return text;
}

}  // namespace dlaunch
