#include "runtime/base/text/toml.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace dlaunch {

namespace {

constexpr std::string_view blanks = " \t\r";
/// Some editors begin a file with it.
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

/// A whole number in the other ways in which TOML writes it, "0x10", "0o17", "0b11", "1_000", "+5",
/// as decimal digits. What is none stays as it is, for its reader to complain about.
std::string plain_number(const std::string& word) {
  constexpr std::array<std::pair<std::string_view, int>, 3> prefixes = {
      {{"0x", 16}, {"0o", 8}, {"0b", 2}}};
  std::string_view rest = word;
  const bool negative = rest.starts_with('-');
  const bool sign = negative || rest.starts_with('+');
  if (sign) rest.remove_prefix(1);
  int base = 10;
  for (const auto& [prefix, its_base] : prefixes) {
    if (sign || !rest.starts_with(prefix)) continue;
    rest.remove_prefix(prefix.size());
    base = its_base;
  }
  std::string digits;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool between = i > 0 && i + 1 < rest.size() && rest[i - 1] != '_';
    if (rest[i] != '_') digits += rest[i];
    if (rest[i] == '_' && !between) return word;
  }
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (digits.empty() || error != std::errc{} || stop != end) return word;
  // A zero in front is no TOML in decimal; a file's mode has one.
  if (base == 10 && digits.size() > 1 && digits.front() == '0') return word;
  return (negative ? "-" : "") + std::to_string(value);
}

/// Reads the text from its begin to its end. What cannot be read leaves a complaint, with which
/// everything stops.
class TomlReader {
 public:
  explicit TomlReader(std::string_view text) : rest_(text) {
    if (rest_.starts_with(byte_order_mark)) rest_.remove_prefix(byte_order_mark.size());
  }

  Read<std::vector<TomlItem>> read(std::string_view path) {
    std::vector<TomlItem> items;
    const auto here = [&](int line) { return std::string(path) + ":" + std::to_string(line); };
    while (skip_lines(), !rest_.empty()) {
      const int line = line_;
      TomlItem item{.key = key(), .value = {}, .where = here(line)};
      if (complaint_.empty()) item.value = value();
      if (complaint_.empty()) end_line(item.key);
      if (!complaint_.empty()) return Complaint{here(line) + ": " + complaint_};
      items.push_back(std::move(item));
    }
    return items;
  }

 private:
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    if (c == '\n') ++line_;
    rest_.remove_prefix(1);
    return true;
  }

  void skip_blanks() {
    while (!rest_.empty() && blanks.find(rest_.front()) != std::string_view::npos) take(rest_[0]);
    if (rest_.starts_with('#')) rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
  }

  void skip_lines() {
    do skip_blanks();
    while (take('\n'));
  }

  /// What stands before any of `ends`, without the blanks behind it.
  std::string word(std::string_view ends) {
    std::string_view found = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(found.size());
    return std::string(found.substr(0, found.find_last_not_of(blanks) + 1));
  }

  std::string key() {
    if (take('[')) {
      complaint_ = "section [" + word("]\n") + "]: there are no sections";
      return {};
    }
    const bool quoted = rest_.starts_with('"') || rest_.starts_with('\'');
    std::string name = quoted ? string() : word("=#\n");
    skip_blanks();
    if (complaint_.empty() && (name.empty() || !take('='))) {
      complaint_ = clipped(name) + ": KEY = VALUE is expected";
    }
    skip_blanks();
    return name;
  }

  std::string value() {
    if (take('[')) return array();
    if (rest_.starts_with('"') || rest_.starts_with('\'')) return string();
    std::string found = word("#\n");
    if (found.empty()) complaint_ = "the value is missing";
    return plain_number(found);
  }

  std::string array() {
    std::string joined;
    for (bool first = true;; first = false) {
      skip_lines();
      if (take(']') || !complaint_.empty()) return joined;
      if (rest_.empty()) return complaint_ = "the closing ] is missing", joined;
      const bool quoted = rest_.starts_with('"') || rest_.starts_with('\'');
      if (!first) joined += ',';
      joined += quoted ? string() : plain_number(word(",]#\n"));
      skip_lines();
      if (!take(',') && !rest_.empty() && !rest_.starts_with(']') && complaint_.empty()) {
        complaint_ = "a , or ] is missing in the array";
      }
    }
  }

  std::string string() {
    constexpr std::string_view escapes = "btnfr\"\\", meanings = "\b\t\n\f\r\"\\";
    const char quote = rest_.front();
    take(quote);
    std::string found;
    while (!rest_.empty() && rest_.front() != '\n') {
      if (take(quote)) return found;
      if (quote == '"' && take('\\')) {
        const auto known = rest_.empty() ? escapes.npos : escapes.find(rest_.front());
        if (known == escapes.npos) {
          complaint_ =
              "a \\ in double quotes is written \\\\; in single quotes it stands for itself";
          return {};
        }
        found += meanings[known];
      } else {
        found += rest_.front();
      }
      rest_.remove_prefix(1);
    }
    complaint_ = std::string("the closing ") + quote + " is missing";
    return {};
  }

  void end_line(const std::string& name) {
    skip_blanks();
    if (rest_.empty() || take('\n')) return;
    complaint_ = "behind the value of " + clipped(name) + " stands " + clipped(word("\n"));
  }

  std::string_view rest_;
  int line_ = 1;
  std::string complaint_;
};

}  // namespace

Read<std::vector<TomlItem>> read_toml(std::string_view path, std::string_view text) {
  return TomlReader(text).read(path);
}

}  // namespace dlaunch
