#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dlaunch::store {

/// The contributors of a round that have arrived. A search for the others takes a step for 64 of
/// them, and begins behind the first ones that have all arrived.
class Arrivals {
 public:
  Arrivals() = default;
  explicit Arrivals(int count)
      : words_((static_cast<std::size_t>(count) + word_bits - 1) / word_bits), count_(count) {}

  /// False if it has arrived before.
  bool add(int contributor) {
    const auto at = static_cast<std::size_t>(contributor);
    const std::uint64_t bit = std::uint64_t{1} << (at % word_bits);
    if ((words_[at / word_bits] & bit) != 0) return false;
    words_[at / word_bits] |= bit;
    ++arrived_;
    while (full_ < words_.size() && words_[full_] == ~std::uint64_t{0}) ++full_;
    return true;
  }
  int count() const { return count_; }
  int lacking() const { return count_ - arrived_; }
  std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }

  /// The first contributor from `from` on, before `end`, that has not arrived; `end` if all have.
  int first_missing(int from, int end) const {
    const auto first = static_cast<std::size_t>(from);
    const auto last = static_cast<std::size_t>(std::min(end, count_));
    for (std::size_t word = std::max(first / word_bits, full_); word * word_bits < last; ++word) {
      std::uint64_t absent = ~words_[word];
      if (word == first / word_bits) absent &= ~std::uint64_t{0} << (first % word_bits);
      if (absent == 0) continue;
      const auto found = word * word_bits + static_cast<std::size_t>(std::countr_zero(absent));
      return found < last ? static_cast<int>(found) : end;
    }
    return end;
  }

  struct Missing {
    std::vector<int> first;   ///< The first that have not arrived.
    std::size_t lacking = 0;  ///< The number of those that have not arrived.
    std::size_t steps = 0;    ///< The steps that the search took.
  };
  Missing missing(std::size_t most) const {
    Missing found{{}, static_cast<std::size_t>(lacking()), 1};
    for (int next = 0; found.first.size() < most && found.first.size() < found.lacking; ++next) {
      next = first_missing(next, count_);
      found.first.push_back(next);
    }
    if (!found.first.empty()) {
      found.steps += static_cast<std::size_t>(found.first.back()) / word_bits - full_;
    }
    return found;
  }

 private:
  static constexpr std::size_t word_bits = 64;

  std::vector<std::uint64_t> words_;
  std::size_t full_ = 0;  ///< The number of leading words whose contributors have all arrived.
  int count_ = 0;
  int arrived_ = 0;
};

}  // namespace dlaunch::store
