#include "collectives/communicator/state.hpp"
#include "collectives/device/loader.hpp"
#include "runtime/base/os/home_process.hpp"

#include <dlaunch/buffer.hpp>

#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::align_val_t alignment{4096};

/// The owner of a shared buffer's memory: the segment, whose arena it came from.
struct Origin {
  std::shared_ptr<Segment> segment;
  int local;
  HomeProcess home = {};
};

void free_shared(const std::shared_ptr<void>& owner, std::byte* memory) noexcept {
  const auto& origin = *static_cast<const Origin*>(owner.get());
  if (!origin.home.is_here()) return;
  if (const auto offset = origin.segment->offset_of(memory, 0)) {
    origin.segment->free(origin.local, *offset);
  }
}

void free_ordinary(const std::shared_ptr<void>& /*owner*/, std::byte* memory) noexcept {
  ::operator delete(memory, alignment);
}

/// It was allocated by the library, which stays loaded.
void free_on_device(const std::shared_ptr<void>& owner, int device, void* memory) noexcept {
  auto& known = *static_cast<DeviceMemory*>(owner.get());
  if (!known.home().is_here()) return;
  known.remove(memory);
  device::library().free(device, memory);
}

}  // namespace

DeviceBuffer Communicator::allocate_device(std::size_t bytes, int device) {
  state_->check_process();
  void* memory = nullptr;
  const auto answer = device::library().allocate(device, bytes, memory);
  if (answer.has_failed()) {
    throw Error(answer.code, "allocate_device of " + std::to_string(bytes) + " bytes on device " +
                                 std::to_string(device) + ": " + answer.why);
  }
  DeviceBuffer buffer;
  buffer.memory_ = {memory, {device, state_->device_memory, &free_on_device}};
  state_->device_memory->add(device, memory, bytes);
  buffer.bytes_ = bytes;
  return buffer;
}

SharedBuffer Communicator::allocate(std::size_t bytes) {
  state_->check_process();
  SharedBuffer buffer;
  buffer.bytes_ = bytes;
  const auto& segment = state_->mesh->segment();
  const auto offset = segment ? segment->allocate(state_->mesh->local(), bytes) : std::nullopt;
  if (offset) {
    auto origin = std::make_shared<Origin>(Origin{segment, state_->mesh->local()});
    buffer.memory_ = {segment->at(*offset), {std::move(origin), &free_shared}};
    buffer.shared_ = true;
  } else {
    // A size that is rounded up must not begin at 0 again.
    if (bytes > std::numeric_limits<std::ptrdiff_t>::max()) throw std::bad_alloc();
    auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment));
    buffer.memory_ = {memory, {nullptr, &free_ordinary}};
  }
  return buffer;
}

}  // namespace dlaunch
