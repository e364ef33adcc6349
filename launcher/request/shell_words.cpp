#include "launcher/request/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace dlaunch::launcher {

std::string shell_word(std::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || (c != 0 && std::strchr("_-+=./:,@%", c));
  });
  if (plain) return std::string(word);
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const auto& word : words) line.append(line.empty() ? "" : " ").append(shell_word(word));
  return line;
}

}  // namespace dlaunch::launcher
