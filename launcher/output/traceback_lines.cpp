#include "launcher/output/traceback_lines.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {
namespace {

constexpr std::string_view words = "Traceback (most recent call last):";
/// The longest mark that may stand before the words.
constexpr std::size_t lead_bytes_max = 128;

void drop_blanks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
}

void drop_rank(std::string_view& text) {
  constexpr std::string_view begin = "[rank";
  if (!text.starts_with(begin)) return;
  const auto end = text.find_first_not_of("0123456789", begin.size());
  if (end != std::string_view::npos && text.substr(end).starts_with("]:")) {
    text.remove_prefix(end + 2);
  }
}

}  // namespace

bool TracebackLines::feed(std::string_view bytes) {
  bool found = false;
  while (!bytes.empty()) {
    if (matched_ == 0) {
      const auto next = std::min(bytes.find(words.front()), bytes.size());
      skip(bytes.substr(0, next));
      bytes.remove_prefix(next);
    }
    while (!bytes.empty() && matched_ < words.size() && bytes.front() == words[matched_]) {
      ++matched_;
      bytes.remove_prefix(1);
    }
    if (matched_ == words.size()) {
      found = found || may_begin();
    } else if (bytes.empty()) {
      break;
    }
    skip(words.substr(0, std::exchange(matched_, 0)));
  }
  return found;
}

/// Takes text that is no part of the words.
void TracebackLines::skip(std::string_view text) {
  const auto end = text.find_last_of("\n\r");
  if (end != std::string_view::npos) {
    returned_ = text[end] == '\r';
    lead_.clear();
    text.remove_prefix(end + 1);
  }
  lead_.append(text.substr(0, lead_bytes_max - std::min(lead_bytes_max, lead_.size())));
}

bool TracebackLines::may_begin() const {
  std::string_view lead = lead_;
  if (returned_) return true;
  if (lead.size() == lead_bytes_max) return false;
  drop_blanks(lead);
  drop_rank(lead);
  drop_blanks(lead);
  constexpr std::string_view group = "+ Exception Group ";
  if (lead.starts_with(group)) lead.remove_prefix(group.size());
  return lead.empty();
}

}  // namespace dlaunch::launcher
