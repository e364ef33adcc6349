#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace dlaunch {

/// Memory from Communicator::allocate. Where the ranks of a node share memory it lies in there, and
/// collectives whose ranks all pass such buffers read and write them directly: nothing is copied on
/// the way. Elsewhere it is ordinary memory. Used like any other; what it begins with is not
/// defined. Movable, not copyable; may outlive its communicator and its world; free it when no call
/// uses it any more.
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

}  // namespace dlaunch
