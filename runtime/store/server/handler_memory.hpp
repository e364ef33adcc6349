#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <utility>

#include <boost/system/error_code.hpp>

namespace dlaunch::store {

/// Room for one handler at a time, so that a loop that waits again and again cannot end for want of
/// memory. A second one, or one that is larger, takes its room from the heap.
class HandlerMemory {
 public:
  HandlerMemory() = default;
  HandlerMemory(const HandlerMemory&) = delete;
  HandlerMemory& operator=(const HandlerMemory&) = delete;

  void* allocate(std::size_t bytes) {
    if (taken_ || bytes > room_.size()) return ::operator new(bytes);
    taken_ = true;
    return room_.data();
  }
  void deallocate(void* place) noexcept {
    if (place == room_.data()) {
      taken_ = false;
    } else {
      ::operator delete(place);
    }
  }

 private:
  alignas(std::max_align_t) std::array<std::byte, 512> room_;
  bool taken_ = false;
};

/// The allocator that Asio asks for. The memory outlives it.
template <class T>
class HandlerAllocator {
 public:
  using value_type = T;
  explicit HandlerAllocator(HandlerMemory& memory) noexcept : memory_(&memory) {}
  template <class Other>
  explicit HandlerAllocator(const HandlerAllocator<Other>& other) noexcept
      : memory_(other.memory_) {}

  T* allocate(std::size_t count) { return static_cast<T*>(memory_->allocate(count * sizeof(T))); }
  void deallocate(T* place, std::size_t /*count*/) noexcept { memory_->deallocate(place); }
  friend bool operator==(const HandlerAllocator&, const HandlerAllocator&) = default;

 private:
  template <class Other>
  friend class HandlerAllocator;
  HandlerMemory* memory_;
};

/// A handler of a wait, whose memory is that room.
template <class Handler>
class WaitHandler {
 public:
  using allocator_type = HandlerAllocator<std::byte>;
  WaitHandler(HandlerMemory& memory, Handler handler)
      : memory_(&memory), handler_(std::move(handler)) {}
  allocator_type get_allocator() const noexcept { return allocator_type(*memory_); }
  template <class... More>
  void operator()(const boost::system::error_code& error, const More&... more) {
    handler_(error, more...);
  }

 private:
  HandlerMemory* memory_;
  Handler handler_;
};

}  // namespace dlaunch::store
