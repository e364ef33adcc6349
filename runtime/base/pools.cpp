#include "runtime/base/pools.hpp"

#include <algorithm>
#include <iterator>

namespace dlaunch {
namespace {

/// The smallest buffer that is kept: the allocator is as fast for smaller ones.
constexpr std::size_t small_bytes = 4096;
constexpr std::size_t kept_max = 64;

}  // namespace

BufferPool::Buffer BufferPool::take(std::size_t bytes) {
  Buffer buffer;
  buffer.size_ = bytes;
  const auto fits = [&](const Kept& kept) { return kept.capacity >= bytes; };
  // The buffer that was given back last is still in the processor's cache.
  const auto found =
      bytes <= small_bytes ? kept_.rend() : std::find_if(kept_.rbegin(), kept_.rend(), fits);
  if (found == kept_.rend()) {
    buffer.memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    buffer.capacity_ = bytes;
  } else {
    buffer.memory_ = std::move(found->memory);
    buffer.capacity_ = found->capacity;
    kept_bytes_ -= found->capacity;
    kept_.erase(std::next(found).base());
  }
  if (buffer.capacity_ > small_bytes) {
    kept_.reserve(kept_max);  // Giving back must not fail.
    buffer.owner_ = this;
  }
  return buffer;
}

void BufferPool::keep(std::unique_ptr<std::byte[]> memory, std::size_t capacity) noexcept {
  // The oldest go first, since sizes change with the program's phases.
  while (!kept_.empty() && (kept_bytes_ + capacity > kept_bytes_max_ || kept_.size() >= kept_max)) {
    kept_bytes_ -= kept_.front().capacity;
    kept_.erase(kept_.begin());
  }
  if (kept_bytes_ + capacity > kept_bytes_max_) return;
  kept_bytes_ += capacity;
  kept_.push_back({std::move(memory), capacity});
}

}  // namespace dlaunch
