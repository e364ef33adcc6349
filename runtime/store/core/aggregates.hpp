#pragma once

#include "runtime/store/core/arrivals.hpp"
#include "runtime/store/core/losses.hpp"
#include "runtime/store/core/waits.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlaunch::store {

/// The rounds of all barriers, or of all all_gathers, of a namespace: the arrivals, and the outcome
/// of the previous round. Each name has one open round; the previous one is remembered, so that a
/// client that missed the answer may ask again. Pure.
class Aggregates {
 public:
  struct Contribution {
    std::string_view name;
    std::uint64_t round = 0;
    int count = 0;
    std::span<const int> contributors;
    std::span<const BytesView> blobs;  ///< Empty for a barrier, else one for each contributor.
  };
  enum class State { waiting, complete, over, refused };
  struct Verdict {
    State state{};
    std::string reason;  ///< The reason of State::refused.
    /// With State::complete (this contribution completed the round) and State::over (it was
    /// complete before): the blobs, and why they cannot be had if they are too many.
    std::shared_ptr<const Bytes> block;
    std::string too_big;
  };

  /// `block_bytes_max` limits what one round may gather; `memory` counts each block, which outlives
  /// its round where somebody is still to get it.
  Aggregates(std::size_t block_bytes_max, std::shared_ptr<MemoryBudget> memory)
      : block_bytes_max_(block_bytes_max), memory_(std::move(memory)) {}

  Verdict contribute(const Contribution& what);
  /// The round of that name is complete, with this outcome, and nobody has arrived since. To be
  /// called before anybody contributes to it.
  void restore(std::string_view name, std::uint64_t round, std::shared_ptr<const Bytes> block,
               std::string_view too_big);
  /// The first contributors that the open round lacks, at most `most`, and how many it lacks in
  /// all; none when nobody has arrived.
  Arrivals::Missing missing(std::string_view name, std::size_t most) const;
  /// The contributors that have arrived in the open round; null if there are none.
  const Arrivals* arrivals(std::string_view name) const;
  /// The names with an open round of `world` that lacks one of these, and the first that it lacks.
  std::vector<std::pair<std::string, int>> lacking(Contributors these, int world) const;
  std::size_t bytes() const { return bytes_; }
  /// The part of them that the last rounds' blocks take.
  std::size_t block_bytes() const { return block_bytes_; }

 private:
  struct Aggregate {
    std::uint64_t round = 0;  ///< The open one.
    /// The arrivals; their number is what the first contributor said, or 0 if nobody has come yet.
    Arrivals arrived;
    std::vector<std::pair<int, Bytes>> blobs;
    bool has_last = false;
    std::shared_ptr<const Bytes> last;
    std::string last_too_big;
  };
  std::string objection(const Contribution& what, const Aggregate& to) const;
  void open(const Contribution& what, Aggregate& aggregate);
  void finish(std::string_view name, Aggregate& aggregate);
  static std::size_t held_by(const Aggregate& aggregate);

  std::size_t block_bytes_max_;
  const std::shared_ptr<MemoryBudget> memory_;
  std::size_t bytes_ = 0, block_bytes_ = 0;
  ByName<Aggregate> aggregates_;
  std::map<int, std::set<std::string, std::less<>>> open_;  ///< By the count of contributors.
};

}  // namespace dlaunch::store
