#include "runtime/base/text/toml.hpp"

#include <map>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>

namespace dlaunch {

namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\"'");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\"'") - begin + 1);
}

/// CLI11 does not tell where it found a key; the lines are read once more, for that alone.
std::map<std::string, std::vector<int>, std::less<>> lines_by_key(std::string_view text) {
  std::map<std::string, std::vector<int>, std::less<>> found;
  int number = 0;
  for (const auto line : split(text, '\n')) {
    ++number;
    const auto equals = line.find('=');
    const auto key = trimmed(line.substr(0, equals));
    if (!key.empty() && key.front() != '#') found[std::string(key)].push_back(number);
  }
  return found;
}

}  // namespace

Read<std::vector<TomlItem>> read_toml(const std::string& text) {
  std::vector<TomlItem> items;
  try {
    auto lines = lines_by_key(text);
    std::map<std::string, std::size_t> seen;
    std::istringstream in(text);
    for (const auto& item : CLI::ConfigTOML().from_config(in)) {
      // CLI11 marks a section's begin and end with items of these names.
      if (!item.parents.empty()) {
        return Complaint{"section [" + item.parents.front() + "]: there are no sections"};
      }
      if (item.name == "++" || item.name == "--") continue;
      auto& read = items.emplace_back(TomlItem{.key = item.name, .value = {}});
      for (const auto& input : item.inputs) read.value += (read.value.empty() ? "" : ",") + input;
      const auto& where = lines[item.name];
      const auto nth = seen[item.name]++;
      if (nth < where.size()) read.line = where[nth];
    }
  } catch (const std::exception& error) {
    return Complaint{error.what()};
  }
  return items;
}

}  // namespace dlaunch
