#pragma once

#include "collectives/device/library.hpp"
#include "runtime/base/os/home_process.hpp"

#include <cstddef>
#include <map>
#include <mutex>

namespace dlaunch {

/// The buffers that were allocated from one communicator and live: its group knows them, from the
/// time when there is one. For any number of threads.
class DeviceMemory {
 public:
  /// In a forked child nothing of it can be freed.
  const HomeProcess& home() const noexcept { return home_; }
  void add(int device, void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Known& known = buffers_[memory];
    known = {device, bytes, nullptr};
    tell(memory, known);
  }
  /// It is about to be freed.
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
  /// The group is about to end, and where it `is_quiet` forgets the buffers before.
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
    void* handle = nullptr;  ///< The group's handle; null: the group does not know the memory.
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
