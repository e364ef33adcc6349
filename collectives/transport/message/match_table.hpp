#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/base/intrusive_list.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dlaunch::transport {

/// The key by which a message and a receive meet if neither source nor tag is "any".
struct MatchKey {
  Kind kind{};
  int from = -1;  ///< World rank.
  int tag = 0;    ///< 0 for collectives, which have none.
  std::uint64_t communicator = 0;

  bool operator==(const MatchKey&) const = default;
  std::uint64_t hash() const noexcept {
    const std::uint64_t pair =
        std::uint64_t{static_cast<std::uint32_t>(from)} << 32 | static_cast<std::uint32_t>(tag);
    // A product's upper bits depend on all bits of its factors.
    return ((pair ^ static_cast<std::uint64_t>(kind) << 60) * 0x9e3779b97f4a7c15U ^ communicator) *
           0x94d049bb133111ebU;
  }
};

inline MatchKey key_of(const Header& header, int from) noexcept {
  return {header.kind, from, header.kind == Kind::message ? header.tag : 0, header.communicator};
}

/// Items by their key, which `key_of(item)` gives; those of one key in the order in which they were
/// added. Finding takes the same time however many there are. Takes memory only to grow. Not
/// thread-safe.
template <class T, ListPlace<T> T::*place>
class MatchTable {
 public:
  bool empty() const noexcept { return size_ == 0; }
  void add(T& item) {
    if (size_ == buckets_.size()) grow();
    bucket(key_of(item)).push_back(item);
    ++size_;
  }
  /// An item that is in it.
  void remove(T& item) noexcept {
    bucket(key_of(item)).remove(item);
    --size_;
  }
  /// The first one of which `fits` holds; null if there is none.
  template <class Fits>
  T* find(const MatchKey& key, const Fits& fits) const noexcept {
    if (size_ == 0) return nullptr;
    T* item = buckets_[index(key)].first();
    while (item != nullptr && !(key_of(*item) == key && fits(*item))) item = Bucket::after(*item);
    return item;
  }
  /// The first one; null if there is none.
  T* find(const MatchKey& key) const noexcept {
    return find(key, [](const T&) { return true; });
  }

 private:
  using Bucket = IntrusiveList<T, place>;
  static constexpr std::size_t buckets_min = 16;

  std::size_t index(const MatchKey& key) const noexcept { return key.hash() >> shift_; }
  Bucket& bucket(const MatchKey& key) noexcept { return buckets_[index(key)]; }
  /// The items of one key are in one bucket, before and after.
  void grow() {
    std::vector<Bucket> old(buckets_.empty() ? buckets_min : 2 * buckets_.size());
    old.swap(buckets_);
    shift_ = 64;
    for (std::size_t size = buckets_.size(); size > 1; size /= 2) --shift_;
    for (Bucket& each : old) {
      while (T* const item = each.pop_front()) bucket(key_of(*item)).push_back(*item);
    }
  }

  std::vector<Bucket> buckets_;  ///< As many as a power of two, and no fewer than items.
  int shift_ = 64;
  std::size_t size_ = 0;
};

}  // namespace dlaunch::transport
