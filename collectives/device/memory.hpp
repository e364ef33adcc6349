#pragma once

#include "collectives/device/library.hpp"
#include "runtime/base/os/home_process.hpp"

#include <cstddef>
#include <map>
#include <mutex>

namespace dlaunch {

/// The live buffers that were allocated from one communicator, registered with its group as soon as
/// there is one. For any number of threads.
class DeviceMemory {
 public:
  /// A forked child can free none of it.
  const HomeProcess& home() const noexcept { return home_; }
  void add(int device, void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Known& known = buffers_[memory];
    known = {device, bytes, nullptr};
    tell(memory, known);
  }
  /// Called before a buffer is freed.
  void remove(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = buffers_.find(memory);
    if (found == buffers_.end()) return;
    forget(found->second);
    buffers_.erase(found);
  }
  /// Borrowed until leave().
  void use(device::Group& group, int device) {
    const std::lock_guard lock(mutex_);
    group_ = &group;
    device_ = device;
    for (auto& [memory, known] : buffers_) tell(memory, known);
  }
  /// The group is about to end; if it `is_quiet` the buffers are unregistered first.
  void leave(bool is_quiet) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto& [memory, known] : buffers_) {
      if (is_quiet) forget(known);
      known.handle = nullptr;
    }
    group_ = nullptr;
  }

 private:
  struct Known {
    int device = -1;
    std::size_t bytes = 0;
    void* handle = nullptr;  ///< The group's handle; null: the memory is not registered.
  };
  void tell(void* memory, Known& known) {
    if (group_ == nullptr || known.device != device_ || known.bytes == 0) return;
    known.handle = group_->add_memory(memory, known.bytes);
  }
  void forget(Known& known) noexcept {
    if (group_ != nullptr && known.handle != nullptr) group_->remove_memory(known.handle);
  }

  const HomeProcess home_;
  std::mutex mutex_;
  std::map<void*, Known> buffers_;
  device::Group* group_ = nullptr;
  int device_ = -1;
};

}  // namespace dlaunch
