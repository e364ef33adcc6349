#pragma once

#include <cstddef>
#include <memory>
#include <new>
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

/// Keeps memory for objects of one size, which a thread that starts calls and waits for them again
/// and again needs as often. Each thread keeps its own, up to a limit; memory that one thread took
/// another may give back.
template <std::size_t bytes, std::size_t alignment>
class PooledMemory {
 public:
  static void* take() {
    Kept& kept = kept_;
    if (kept.first == nullptr) [[unlikely]]
      return take_some();
    --kept.count;
    return std::exchange(kept.first, kept.first->next);
  }
  static void give_back(void* memory) noexcept {
    Kept& kept = kept_;
    if (kept.count >= kept_max || !keeps()) return free(memory);
    kept.first = ::new (memory) Spare{kept.first};
    ++kept.count;
  }

 private:
  /// Memory for so many is taken at a time: for the window of calls that a program has under way,
  /// however many of them are under way when it waits.
  static constexpr std::size_t taken_at_once = 64;
  /// The most that a thread keeps: usually more than it has under way at a time.
  static constexpr std::size_t kept_max = 1024;
  struct Spare {
    Spare* next;
  };
  static_assert(sizeof(Spare) <= bytes && alignof(Spare) <= alignment);
  struct Kept {
    Spare* first = nullptr;
    std::size_t count = 0;
    bool has_end = false;    ///< The thread frees them when it ends,
    bool has_ended = false;  ///< and keeps none then.
  };
  struct End {
    End() { kept_.has_end = true; }
    ~End() {
      kept_.has_ended = true;
      while (kept_.first != nullptr) free(std::exchange(kept_.first, kept_.first->next));
    }
  };

  [[gnu::noinline]] static void* take_some() {
    void* const first = ::operator new(bytes, std::align_val_t(alignment));
    for (std::size_t i = 1; i < taken_at_once && keeps(); ++i) {
      void* const more = ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
      if (more == nullptr) break;
      give_back(more);
    }
    return first;
  }
  static bool keeps() noexcept {
    if (!kept_.has_end) [[unlikely]] {
      static thread_local const End end;
      static_cast<void>(end);
    }
    return !kept_.has_ended;
  }
  static void free(void* memory) noexcept {
    ::operator delete(memory, std::align_val_t(alignment));
  }

  /// It needs no destructor, so that access needs no check. It is so small that even a library that
  /// is loaded late finds room in the initial thread-local storage (tls_model), which saves a call.
  [[gnu::tls_model("initial-exec")]] static constinit inline thread_local Kept kept_{};
};

/// An allocator for std::allocate_shared.
template <class T>
struct Pooled {
  using value_type = T;
  Pooled() = default;
  template <class U>
  Pooled(const Pooled<U>&) noexcept {}  // NOLINT: as an allocator is.
  T* allocate(std::size_t) { return static_cast<T*>(PooledMemory<sizeof(T), alignof(T)>::take()); }
  void deallocate(T* memory, std::size_t) noexcept {
    PooledMemory<sizeof(T), alignof(T)>::give_back(memory);
  }
  bool operator==(const Pooled&) const = default;
};

}  // namespace dlaunch
