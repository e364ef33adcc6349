#include "launcher/subcommands/rank_ranges.hpp"

#include <algorithm>
#include <variant>

namespace dlaunch::launcher {
namespace {

constexpr long rank_max = 10'000'000;

std::string text_of(const RankRanges::Range& range) {
  const std::string first = std::to_string(range.first);
  return range.first == range.last ? first : first + "-" + std::to_string(range.last);
}

}  // namespace

bool RankRanges::has(int rank) const {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [rank](const Range& range) {
           return range.first <= rank && rank <= range.last;
         });
}

std::string RankRanges::none_of(const std::vector<int>& here) const {
  if (std::any_of(here.begin(), here.end(), [this](int rank) { return has(rank); })) return "";
  const bool one = ranges.size() == 1 && ranges.front().first == ranges.front().last;
  std::string text = (one ? "rank " : "ranks ");
  for (const auto& range : ranges) text += (&range == ranges.data() ? "" : ",") + text_of(range);
  return text + (one ? " is" : " are") + " not here; " + ranks_text(here) +
         (here.size() == 1 ? " is" : " are");
}

Read<RankRanges> read_rank_ranges(std::string_view text) {
  RankRanges read;
  for (const auto part : split(text, ',')) {
    const auto dash = part.find('-', 1);
    const auto first = read_integer(part.substr(0, dash), 0, rank_max);
    if (const auto* complaint = std::get_if<Complaint>(&first)) return *complaint;
    auto last = first;
    if (dash != std::string_view::npos) last = read_integer(part.substr(dash + 1), 0, rank_max);
    if (const auto* complaint = std::get_if<Complaint>(&last)) return *complaint;
    const RankRanges::Range range{static_cast<int>(std::get<long>(first)),
                                  static_cast<int>(std::get<long>(last))};
    if (range.last < range.first) {
      return Complaint{in_quotes(part) + " is no range: the first rank stands before the last"};
    }
    read.ranges.push_back(range);
  }
  return read;
}

}  // namespace dlaunch::launcher
