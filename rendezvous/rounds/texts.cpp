#include "rendezvous/rounds/texts.hpp"

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes the digits off the front of `text`, without leading zeros.
std::string_view take_number(std::string_view& text) {
  while (text.size() > 1 && text.front() == '0' && is_digit(text[1])) text.remove_prefix(1);
  std::size_t length = 0;
  while (length < text.size() && is_digit(text[length])) ++length;
  const auto digits = text.substr(0, length);
  text.remove_prefix(length);
  return digits;
}

}  // namespace

std::string nodes_text(const JobRules& rules) {
  if (rules.nodes_min == rules.nodes_max) return plural(rules.nodes_max, "node");
  return std::to_string(rules.nodes_min) + " to " + plural(rules.nodes_max, "node");
}

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const auto x = take_number(a);
      const auto y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // node2 and node02 differ, too.
}

std::string list_text(const std::vector<std::string>& names) {
  return listed(names, names_shown_max);
}

std::string silence_text(Clock::duration silence) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string rest_text(Clock::duration left) {
  if (left > 2min) {
    return std::to_string(std::chrono::ceil<std::chrono::minutes>(left).count()) + " min";
  }
  return duration_text(std::chrono::ceil<std::chrono::seconds>(left));
}

}  // namespace dlaunch::rendezvous
