#pragma once

#include "runtime/store/core/waits.hpp"

#include <cstdint>
#include <memory>
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

  /// `block_bytes_max` limits what one round may gather.
  explicit Aggregates(std::size_t block_bytes_max) : block_bytes_max_(block_bytes_max) {}

  Verdict contribute(const Contribution& what);
  /// The round of that name is complete, with this outcome, and nobody has arrived since. To be
  /// called before anybody contributes to it.
  void restore(std::string_view name, std::uint64_t round, std::shared_ptr<const Bytes> block,
               std::string_view too_big);
  /// The first contributors that the open round lacks, at most `most`, and how many it lacks in
  /// all; none when nobody has arrived.
  std::pair<std::vector<int>, std::size_t> missing(std::string_view name, std::size_t most) const;
  /// Whether the open round of `name` has `count` contributors and lacks `contributor`.
  bool lacks(std::string_view name, int contributor, int count) const;
  std::size_t bytes() const { return bytes_; }

 private:
  struct Aggregate {
    std::uint64_t round = 0;  ///< The open one.
    int count = 0;            ///< As the first contributor to the open round said; 0: nobody yet.
    std::vector<bool> arrived;
    int arrived_count = 0;
    std::vector<std::pair<int, Bytes>> blobs;
    bool has_last = false;
    std::shared_ptr<const Bytes> last;
    std::string last_too_big;
  };
  std::string objection(const Contribution& what, const Aggregate& to) const;
  void finish(Aggregate& aggregate);
  static std::size_t held_by(const Aggregate& aggregate);

  std::size_t block_bytes_max_;
  std::size_t bytes_ = 0;
  ByName<Aggregate> aggregates_;
};

}  // namespace dlaunch::store
