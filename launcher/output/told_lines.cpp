#include "launcher/output/told_lines.hpp"

#include <algorithm>

namespace dlaunch::launcher {
namespace {

constexpr std::string_view mark = "dlaunch: ";

/// Whether the line begins as the launcher's do, as far as it has come.
bool may_be_own(std::string_view line) {
  const auto known = std::min(line.size(), mark.size());
  return line.substr(0, known) == mark.substr(0, known);
}

}  // namespace

std::string ToldLines::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const bool ended = end != std::string_view::npos;
    const auto part = bytes.substr(0, ended ? end + 1 : bytes.size());
    bytes.remove_prefix(part.size());
    if (passes_) {
      out += part;
    } else {
      held_ += part;
      const bool own = may_be_own(held_) && held_.size() <= line_bytes_max;
      if (own && !ended) continue;
      if (!own || is_news(held_)) out += held_;
      held_.clear();
    }
    passes_ = !ended;
  }
  return out;
}

/// A host that says something again is heard again.
bool ToldLines::is_news(const std::string& line) {
  if (shown_->size() >= lines_max && !shown_->contains(line)) return true;
  int& shown = (*shown_)[line];
  if (++own_[line] <= shown) return false;
  ++shown;
  return true;
}

}  // namespace dlaunch::launcher
