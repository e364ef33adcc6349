#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch::algorithms {

/// The beginnings and ends of ranks' parts that lie one behind the other. A value; one of equal
/// parts takes no memory.
class Offsets {
 public:
  /// No parts; add() adds them.
  Offsets() = default;
  /// Equal parts, one for each rank; the first begins at `first`.
  Offsets(int ranks, std::size_t each, std::size_t first = 0)
      : count_(static_cast<std::size_t>(ranks)), each_(each), first_(first) {}
  /// One more part.
  void add(std::size_t bytes) {
    if (ends_.empty()) ends_.push_back(first_);
    ends_.push_back(ends_.back() + bytes);
    ++count_;
  }

  std::size_t count() const { return count_; }
  /// The beginning of the `i`-th part, and the end of the one before.
  std::size_t operator[](std::size_t i) const {
    return ends_.empty() ? first_ + i * each_ : ends_[i];
  }
  /// The end of the last one.
  std::size_t back() const { return (*this)[count_]; }
  std::size_t longest() const { return ends_.empty() ? (count_ > 0 ? each_ : 0) : find_longest(); }
  bool are_equal() const { return longest() * count_ == back() - first_; }

 private:
  std::size_t find_longest() const;

  std::size_t count_ = 0;
  std::size_t each_ = 0;           ///< If `ends_` is empty.
  std::size_t first_ = 0;          ///< The beginning of the first one.
  std::vector<std::size_t> ends_;  ///< The same, and the end of each.
};

Offsets parts_of(std::span<const std::size_t> counts, std::size_t element_bytes);
/// Whole elements, as equal as can be, the first ones longer.
Offsets even_parts(std::size_t bytes, int ranks, std::size_t element_bytes);
inline std::size_t begin_of_part(const Offsets& parts, int rank) {
  return parts[static_cast<std::size_t>(rank)];
}
inline std::size_t size_of_part(const Offsets& parts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return parts[r + 1] - parts[r];
}

/// The ranks' parts of a call's data: side by side in one buffer, or each in a place of its own.
/// Borrows all that it is made of.
template <class Byte>
class BasicRankParts {
 public:
  /// `places` are the addresses of parts that lie apart; without any the parts lie in `data`.
  BasicRankParts(Byte* data, const Offsets& offsets, std::span<Byte* const> places = {}) noexcept
      : data_(data), offsets_(offsets), places_(places) {}

  Byte* begin(int rank) const noexcept {
    const auto r = static_cast<std::size_t>(rank);
    return places_.empty() ? data_ + offsets_[r] : places_[r];
  }
  std::size_t size(int rank) const noexcept { return size_of_part(offsets_, rank); }
  std::span<Byte> operator[](int rank) const noexcept { return {begin(rank), size(rank)}; }
  /// The lengths of the parts, and, if they lie side by side, where they begin.
  const Offsets& offsets() const noexcept { return offsets_; }
  std::size_t bytes() const noexcept { return offsets_.back(); }
  bool are_together() const noexcept { return places_.empty(); }
  /// The parts of some ranks from `first` on, with offsets of their own.
  BasicRankParts some(int first, const Offsets& offsets) const noexcept {
    if (places_.empty()) return {begin(first), offsets};
    return {nullptr, offsets, places_.subspan(static_cast<std::size_t>(first), offsets.count())};
  }

 private:
  Byte* data_;
  const Offsets& offsets_;
  std::span<Byte* const> places_;
};
using RankParts = BasicRankParts<std::byte>;
using ConstRankParts = BasicRankParts<const std::byte>;
/// Side by side.
void copy_parts(const ConstRankParts& parts, std::byte* to);

}  // namespace dlaunch::algorithms
