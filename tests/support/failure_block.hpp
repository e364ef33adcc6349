#pragma once

#include <string>

namespace dlaunch::testing {

/// The last failure block in what a launcher said, each of its fields in one line; empty where
/// there is none.
inline std::string failure_block(const std::string& text) {
  const std::string border = "\n" + std::string(80, '=') + "\n";
  const auto end = text.rfind(border);
  if (end == std::string::npos) return {};
  const auto begin = ("\n" + text.substr(0, end)).rfind(border);
  if (begin == std::string::npos) return {};
  std::string block = text.substr(begin, end + 1 - begin);
  const std::string wrapped = "\n" + std::string(10, ' ');
  for (auto at = block.find(wrapped); at != std::string::npos; at = block.find(wrapped, at)) {
    block.replace(at, wrapped.size(), " ");
  }
  return block;
}

/// The text of one of its fields: "cause", "ended", "others"; empty where it has none.
inline std::string field_of(const std::string& block, std::string label) {
  const std::string begin = "\n  " + label.append(6 - label.size(), ' ') + ": ";
  const auto at = block.find(begin);
  if (at == std::string::npos) return {};
  const auto from = at + begin.size();
  return block.substr(from, block.find('\n', from) - from);
}

}  // namespace dlaunch::testing
