#pragma once

#include "collectives/device/library.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dlaunch::bench {

/// --device cuda: the device of one rank, and the stream that its calls are put on. Every function
/// throws Error with what the driver says.
class CudaDevice {
 public:
  /// Takes the device of the rank's local number, starting over if there are fewer devices. Throws
  /// Error{unsupported} with what is lacking.
  explicit CudaDevice(int local_rank);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice();

  int number() const { return number_; }
  /// "NCCL 2.27.3 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)".
  std::string library_name() const { return library_.name(); }
  void* stream() const { return stream_; }
  /// All ranks bring up NCCL, in a call of one element.
  void bring_up(Communicator& communicator);
  /// Memory that no communicator knows.
  void* allocate(std::size_t bytes);
  void free(void* memory) noexcept { library_.free(number_, memory); }
  /// Waits until everything on the stream is done.
  void synchronize();
  void write(std::span<const std::byte> from, void* to);
  void read(const void* from, std::span<std::byte> to);

 private:
  device::Library& library_;
  int number_ = 0;
  void* stream_ = nullptr;
};

/// A view's data where the host can read and write it: in its own memory, or in a copy of what lies
/// on a device.
class Shown {
 public:
  /// `device` is null for host memory. Borrowed.
  Shown(CudaDevice* device, const TensorView& view) : device_(device), view_(view) {
    if (device != nullptr) copy_.resize(view.bytes());
  }
  std::span<std::byte> bytes() {
    if (device_ != nullptr) return copy_;
    return {static_cast<std::byte*>(view_.data), view_.bytes()};
  }
  void put_back() {
    if (device_ != nullptr) device_->write(copy_, view_.data);
  }
  void fetch() {
    if (device_ != nullptr) device_->read(view_.data, copy_);
  }
  void clear();

 private:
  CudaDevice* device_;
  TensorView view_;
  std::vector<std::byte> copy_;
};

}  // namespace dlaunch::bench
