#include "launcher/output/line_filter.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {

std::string LineFilter::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const auto end = bytes.find_first_of("\n\r");
    const auto taken = std::min({end, bytes.size(), line_bytes_max - partial_.size()});
    const bool ended = taken == end;
    partial_.append(bytes.substr(0, taken));
    if (ended || partial_.size() == line_bytes_max) judge(std::exchange(partial_, {}), out);
    bytes.remove_prefix(taken + (ended ? 1 : 0));
  }
  return out;
}

std::string LineFilter::end() {
  std::string out;
  judge(std::exchange(partial_, {}), out);
  return out;
}

void LineFilter::judge(std::string_view line, std::string& out) const {
  const bool picked = std::any_of(words_.begin(), words_.end(), [&](const auto& word) {
    return line.find(word) != std::string_view::npos;
  });
  if (picked) out.append(prefix_).append(line).append("\n");
}

}  // namespace dlaunch::launcher
