#include "launcher/output/row_text.hpp"

#include <algorithm>

namespace dlaunch::launcher {
namespace {

/// The number of characters: the continuation bytes of UTF-8 do not count.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string fitting(std::string sentence, std::size_t columns) {
  const auto fits = [&] { return columns == 0 || width_of(sentence) < columns; };
  while (!fits()) {
    const auto open = sentence.find(" ("), close = sentence.find(')', open);
    if (open == std::string::npos || close == std::string::npos) break;
    sentence.erase(open, close + 1 - open);
  }
  while (!fits()) {
    const auto last = sentence.rfind("; ");
    if (last == std::string::npos) break;
    sentence.resize(last);
  }
  return sentence;
}

}  // namespace dlaunch::launcher
