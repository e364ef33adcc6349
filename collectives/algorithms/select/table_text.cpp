#include "collectives/algorithms/select/table_text.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace dlaunch::algorithms {
namespace {

constexpr std::string_view no_limit = "unlimited";
/// A larger limit is taken for a mistake.
constexpr std::size_t most_max = std::size_t{1} << 60;
/// How much of the file's text a message repeats.
constexpr std::size_t shown_max = 60;

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string shown(std::string_view text) {
  std::string copy(text.substr(0, shown_max));
  for (char& c : copy) {
    if (c < ' ' || c > '~') c = '?';
  }
  return "'" + copy + (text.size() > shown_max ? "...'" : "'");
}

std::optional<std::size_t> read_most(std::string_view text) {
  if (text == no_limit) return unlimited;
  std::size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value > most_max) {
    return std::nullopt;
  }
  return value;
}

/// What is wrong with the line, or nullopt: it is in the table.
std::optional<std::string> read_line(std::string_view line, Table& table,
                                     std::set<std::string, std::less<>>& seen) {
  const auto equals = line.find('=');
  if (equals == line.npos) return shown(line) + " is not NAME = NUMBER";
  const auto name = trimmed(line.substr(0, equals));
  const auto value = trimmed(line.substr(equals + 1));
  if (table.find(name) == nullptr) {
    return shown(name) +
           " names no line of this version's table; dlaunch bench --calibrate writes those there "
           "are";
  }
  if (!seen.emplace(name).second) return shown(name) + " is there for the second time";
  const auto most = read_most(value);
  if (!most) {
    return shown(value) + " is neither a whole number from 0 to 2^60 nor '" +
           std::string(no_limit) + "'";
  }
  table.set_limit(name, *most);
  return std::nullopt;
}

}  // namespace

std::variant<Table, std::string> parse_table(std::string_view text) {
  Table table;
  std::set<std::string, std::less<>> seen;
  bool has_title = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string where = "line " + std::to_string(number) + ": ";
    if (!has_title) {
      if (line != table_title) {
        return where + shown(line) + " is not '" + std::string(table_title) +
               "': it is no table, or another version's; dlaunch bench --calibrate makes a new one";
      }
      has_title = true;
      continue;
    }
    if (line.empty() || line.starts_with('#')) continue;
    if (const auto wrong = read_line(line, table, seen)) return where + *wrong;
  }
  if (!has_title) return "it is empty; dlaunch bench --calibrate makes a table";
  return table;
}

std::string entry_text(const TableEntry& entry) {
  return entry.name + " = " +
         (entry.most == unlimited ? std::string(no_limit) : std::to_string(entry.most));
}

std::string table_text(std::span<const std::string> comments, std::span<const TableEntry> entries) {
  std::string text(table_title);
  text += '\n';
  for (const std::string& comment : comments) text += "# " + comment + '\n';
  for (const TableEntry& entry : entries) {
    text += '\n';
    if (!entry.comment.empty()) text += "# " + entry.comment + '\n';
    text += entry_text(entry) + '\n';
  }
  return text;
}

}  // namespace dlaunch::algorithms
