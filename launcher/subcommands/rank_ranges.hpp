#pragma once

#include "runtime/base/text/values.hpp"

#include <string>
#include <string_view>
#include <vector>

/// The ranks that a subcommand is asked about. Pure.
namespace dlaunch::launcher {

/// A set of ranks; without any range it has all.
struct RankRanges {
  struct Range {
    int first = 0, last = 0;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> ranges;

  bool has(int rank) const;
  /// Why none of the ranks here is in the set: "rank 7 is not here; ranks 0-3 are". Empty where one
  /// is.
  std::string none_of(const std::vector<int>& here) const;
};

/// "3", "0,2-5".
Read<RankRanges> read_rank_ranges(std::string_view text);

}  // namespace dlaunch::launcher
