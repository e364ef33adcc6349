#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dlaunch {

/// Keeps memory that is needed again and again for a short time. An allocator would give large
/// blocks back to the kernel, which takes longer to map and clear them again than a network takes
/// to fill them. Not thread-safe. Buffers that were taken must not outlive it.
class BufferPool {
 public:
  /// Memory that was taken; gives itself back.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(memory_, other.memory_);
      std::swap(capacity_, other.capacity_);
      std::swap(size_, other.size_);
      return *this;
    }
    ~Buffer() {
      if (owner_ != nullptr) owner_->keep(std::move(memory_), capacity_);
    }
    std::byte* get() const { return memory_.get(); }
    std::size_t size() const { return size_; }
    std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

   private:
    friend class BufferPool;
    BufferPool* owner_ = nullptr;
    std::unique_ptr<std::byte[]> memory_;
    std::size_t capacity_ = 0, size_ = 0;
  };

  /// Keeps at most so many bytes for later.
  explicit BufferPool(std::size_t kept_bytes_max = std::size_t{16} << 20)
      : kept_bytes_max_(kept_bytes_max) {}

  /// Its contents are not defined.
  Buffer take(std::size_t bytes);

 private:
  struct Kept {
    std::unique_ptr<std::byte[]> memory;
    std::size_t capacity;
  };
  void keep(std::unique_ptr<std::byte[]> memory, std::size_t capacity) noexcept;

  std::size_t kept_bytes_max_;
  std::size_t kept_bytes_ = 0;
  std::vector<Kept> kept_;
};

}  // namespace dlaunch
