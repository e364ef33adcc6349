#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dlaunch::transport {

/// Values for the ranks with which this one communicates, few of a world that may be large; it
/// takes room for those alone. A value stays in place, and is never removed. A hash table with open
/// addressing, since it is searched for every message. Not thread-safe.
template <class T>
class ByRank {
 public:
  struct Entry {
    int rank;
    std::unique_ptr<T> kept;
  };

  /// Null if there is nothing.
  T* find(int rank) const noexcept {
    if (slots_.empty()) return nullptr;
    for (std::size_t at = place_of(rank);; at = next(at)) {
      const Slot& slot = slots_[at];
      if (slot.rank == rank) return slot.kept;
      if (slot.kept == nullptr) return nullptr;
    }
  }
  /// Makes the value if there is none.
  template <class... Arguments>
  T& get(int rank, Arguments&&... arguments) {
    if (T* kept = find(rank)) [[likely]]
      return *kept;
    return make(rank, std::forward<Arguments>(arguments)...);
  }

  /// In the order in which they were made.
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Slot {
    int rank = -1;
    T* kept = nullptr;
  };
  static constexpr std::size_t slots_min = 8;

  /// By the product's upper bits, so that ranks at equal distances do not meet (D. E. Knuth, "The
  /// Art of Computer Programming", volume 3, 6.4).
  std::size_t place_of(int rank) const noexcept {
    return static_cast<std::uint32_t>(rank) * 0x9e3779b1U >> shift_;
  }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }
  /// Apart, so that finding what is there saves no registers for it.
  template <class... Arguments>
  [[gnu::noinline]] T& make(int rank, Arguments&&... arguments) {
    // At most half of the slots are taken, so that a search ends soon.
    if (2 * (entries_.size() + 1) > slots_.size()) grow();
    entries_.push_back({rank, std::make_unique<T>(std::forward<Arguments>(arguments)...)});
    put(rank, entries_.back().kept.get());
    return *entries_.back().kept;
  }
  void put(int rank, T* kept) noexcept {
    std::size_t at = place_of(rank);
    while (slots_[at].kept != nullptr) at = next(at);
    slots_[at] = {rank, kept};
  }
  void grow() {
    slots_.assign(slots_.empty() ? slots_min : 2 * slots_.size(), {});
    shift_ = 32;
    for (std::size_t size = slots_.size(); size > 1; size /= 2) --shift_;
    for (const Entry& entry : entries_) put(entry.rank, entry.kept.get());
  }

  std::vector<Slot> slots_;  ///< As many as a power of two.
  int shift_ = 32;
  std::vector<Entry> entries_;
};

}  // namespace dlaunch::transport
