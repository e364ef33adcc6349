#pragma once

#include <dlaunch/store.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace dlaunch::store {

/// The bytes that all its holders may have together, as far as they are counted: namespaces,
/// answers that wait to be read, and requests that have come and are not taken up yet. Not
/// thread-safe, save that a charge may end on any thread.
struct MemoryBudget {
  std::size_t max = ~std::size_t{0};
  std::uint64_t refused = 0;  ///< Requests for which there was no room.

  bool has_room(std::size_t more) const {
    const std::size_t now = used();
    return now <= max && more <= max - now;
  }
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryCharge;
  std::atomic<std::size_t> used_ = 0;
};

/// The bytes that the budget counts for one holder, as long as that lives.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  /// With null nothing is counted.
  explicit MemoryCharge(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryCharge() { set(0); }

  void set(std::size_t bytes) {
    if (budget_ != nullptr && bytes != bytes_) {
      budget_->used_.fetch_add(bytes - bytes_, std::memory_order_relaxed);
    }
    bytes_ = bytes;
  }
  std::size_t bytes() const { return bytes_; }
  /// Whether the counted bytes are within the limit.
  bool has_room() const { return budget_ == nullptr || budget_->has_room(0); }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  std::size_t bytes_ = 0;
};

/// The block, which the budget counts once as long as it has holders, however many; without a
/// budget the block itself.
inline std::shared_ptr<const Bytes> counted(std::shared_ptr<const Bytes> block,
                                            std::shared_ptr<MemoryBudget> budget) {
  if (block == nullptr || budget == nullptr) return block;
  struct Counted {
    std::shared_ptr<const Bytes> block;
    MemoryCharge charge;
  };
  const Bytes& bytes = *block;
  // With braces, for Clang 14 and 15, to which parentheses make no aggregate.
  const auto both =
      std::make_shared<Counted>(Counted{std::move(block), MemoryCharge(std::move(budget))});
  both->charge.set(bytes.size());
  return {both, &bytes};
}

}  // namespace dlaunch::store
