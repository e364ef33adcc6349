#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace dlaunch {

/// Memory from Communicator::allocate. If the ranks of a node share memory it lies there, and
/// collectives whose ranks all pass such buffers read and write them directly: nothing is copied on
/// the way. Otherwise it is ordinary memory. Used like any other; its initial contents are not
/// defined. May outlive its communicator and its world; free it when no call uses it any more, on
/// any rank. Movable, not copyable.
class DLAUNCH_API SharedBuffer {
 public:
  SharedBuffer() noexcept = default;  ///< Empty.

  std::byte* data() const noexcept { return memory_.get(); }
  std::size_t size_bytes() const noexcept { return bytes_; }
  bool is_shared() const noexcept { return shared_; }
  /// Its whole elements as values of T, which begin as whatever was there.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::span<T> as()
  const noexcept { return {reinterpret_cast<T*>(data()), bytes_ / sizeof(T)}; }

 private:
  friend class Communicator;
  struct Free {
    std::shared_ptr<void> owner;  ///< Keeps the memory mapped.
    void (*free)(const std::shared_ptr<void>& owner, std::byte* memory) noexcept;
    void operator()(std::byte* memory) const noexcept { free(owner, memory); }
  };

  std::unique_ptr<std::byte, Free> memory_{nullptr, Free{}};
  std::size_t bytes_ = 0;
  bool shared_ = false;
};

/// Memory on a CUDA device, from Communicator::allocate_device: NCCL's own where it has an
/// allocator (2.19 and later), and registered with that communicator's, which lets it move data
/// without copies. Its initial contents are not defined. Movable, not copyable; may outlive its
/// communicator; free it when no call uses it any more.
class DLAUNCH_API DeviceBuffer {
 public:
  DeviceBuffer() noexcept = default;  ///< Empty.

  void* data() const noexcept { return memory_.get(); }
  std::size_t size_bytes() const noexcept { return bytes_; }
  /// -1 of an empty one.
  int device() const noexcept { return memory_.get_deleter().device; }
  /// Its whole elements of that type.
  TensorView view(DType dtype) const noexcept {
    const std::size_t each = size_of(dtype);
    return {data(), each > 0 ? bytes_ / each : 0, dtype, Place{device()}};
  }

 private:
  friend class Communicator;
  struct Free {
    int device = -1;
    std::shared_ptr<void> owner;  ///< Knows it as registered.
    void (*free)(const std::shared_ptr<void>& owner, int device, void* memory) noexcept = nullptr;
    void operator()(void* memory) const noexcept { free(owner, device, memory); }
  };

  std::unique_ptr<void, Free> memory_{nullptr, Free{}};
  std::size_t bytes_ = 0;
};

}  // namespace dlaunch
