#include "runtime/store/core/losses.hpp"

#include <algorithm>
#include <iterator>

namespace dlaunch::store {
namespace {

/// The bytes of a range in its map, about.
constexpr std::size_t range_bytes = 96;

}  // namespace

void Losses::add(Contributors lost, int world, std::string_view why) {
  auto& ranges = worlds_[world];
  const auto reason = std::make_shared<const std::string>(why);
  for (int from = lost.first; from < lost.end();) {
    const auto next = ranges.upper_bound(from);
    if (next != ranges.begin()) {
      Range& before = std::prev(next)->second;
      if (before.end > from) {
        from = before.end;
        continue;
      }
    }
    const int end = next == ranges.end() ? lost.end() : std::min(lost.end(), next->first);
    if (next != ranges.begin() && std::prev(next)->second.end == from &&
        *std::prev(next)->second.why == why) {
      std::prev(next)->second.end = end;
    } else {
      bytes_ += range_bytes + (reason.use_count() == 1 ? reason->size() : 0);
      ranges.emplace_hint(next, from, Range{end, reason});
    }
    from = end;
  }
}

const std::map<int, Losses::Range>& Losses::of(int world) const {
  static const std::map<int, Range> none;
  const auto found = worlds_.find(world);
  return found == worlds_.end() ? none : found->second;
}

}  // namespace dlaunch::store
