#include "launcher/scheduler/node_list.hpp"

#include "runtime/base/phrases.hpp"

#include <charconv>

namespace dlaunch::launcher {
namespace {

using Names = std::vector<std::string>;

constexpr std::size_t names_max = listed_nodes_max;
/// The most digits of a node's number.
constexpr std::size_t digits_max = 9;

/// "007" and its like; nullopt for anything else.
std::optional<long> number_of(std::string_view digits) {
  if (digits.empty() || digits.size() > digits_max) return std::nullopt;
  long value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value);
  if (read.ec != std::errc{} || read.ptr != end || value < 0) return std::nullopt;
  return value;
}

std::string padded(long value, std::size_t width) {
  std::string digits = std::to_string(value);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

Complaint bad_range(std::string_view range) {
  return {in_quotes(range) + " is no range of node numbers"};
}

Complaint too_many() {
  return {"more than " + std::to_string(listed_nodes_max) + " nodes are listed"};
}

/// Reads the text between brackets: "01-03,07".
Read<Names> read_ranges(std::string_view ranges) {
  Names numbers;
  if (ranges.empty()) return bad_range(ranges);
  for (const std::string_view range : split(ranges, ',')) {
    const auto dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const auto first = number_of(from);
    const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
    if (!first || !last || *last < *first) return bad_range(range);
    if (static_cast<std::size_t>(*last - *first) >= names_max - numbers.size()) {
      return too_many();
    }
    // The first number's width is that of all: "[08-10]" is 08, 09 and 10.
    for (long n = *first; n <= *last; ++n) numbers.push_back(padded(n, from.size()));
  }
  return numbers;
}

/// Every one of `heads` followed by every one of `tails`.
Read<Names> product(const Names& heads, const Names& tails) {
  if (heads.size() * tails.size() > names_max) return too_many();
  Names all;
  all.reserve(heads.size() * tails.size());
  for (const auto& head : heads) {
    for (const auto& tail : tails) all.push_back(head + tail);
  }
  return all;
}

/// One element of the list, with any number of brackets: "r[0-1]n[0-1]".
Read<Names> read_element(std::string_view element) {
  Names names{""};
  const std::string_view whole = element;
  while (!element.empty()) {
    const auto open = element.find('[');
    for (auto& name : names) name += element.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = element.find(']', open);
    if (close == std::string_view::npos) {
      return Complaint{in_quotes(whole) + " lacks a closing bracket"};
    }
    auto numbers = read_ranges(element.substr(open + 1, close - open - 1));
    if (std::holds_alternative<Complaint>(numbers)) return numbers;
    auto longer = product(names, std::get<Names>(numbers));
    if (std::holds_alternative<Complaint>(longer)) return longer;
    names = std::get<Names>(std::move(longer));
    element.remove_prefix(close + 1);
  }
  if (names.front().empty()) return Complaint{"a name in the list is empty"};
  return names;
}

}  // namespace

Read<Names> read_node_list(std::string_view text) {
  Names all;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (i < text.size() && (c != ',' || inside)) continue;
    auto element = read_element(text.substr(start, i - start));
    if (std::holds_alternative<Complaint>(element)) return element;
    auto& names = std::get<Names>(element);
    if (names.size() > names_max - all.size()) return too_many();
    all.insert(all.end(), std::make_move_iterator(names.begin()),
               std::make_move_iterator(names.end()));
    start = i + 1;
  }
  return all;
}

}  // namespace dlaunch::launcher
